// Families with embeddings of positions, norms without weights, limits of queries, trained activations, and layers that
// differ in their sizes.
#include <cmath>

#include "graph_parts.h"
#include "open_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

using NodeNames = std::vector<std::string>;

void check_refused(const TempDir& folder, const TinyFile& f, const std::string& subject, const std::string& word) {
  INFO(subject << ": " << word);
  const std::optional<Error> error = failure(folder, f);
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->kind() == ErrorKind::Model);
  CHECK(error->parts().subject.find("\"" + subject + "\"") != std::string::npos);
  CHECK(std::string(error->what()).find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("gpt2 and starcoder: embeddings of positions, as many as the context has, and no rotation") {
  const TempDir folder;
  for (const std::string arch : {"gpt2", "starcoder"}) {
    INFO(arch);
    TinyFile f = tiny_model({.arch = arch, .kv_heads = 1});
    const Opened model = open_tiny(folder, f);
    CHECK(producers(model.graph, "position_embd") == NodeNames{"position_embd.weight", "positions"});
    CHECK(producers(model.graph, "embedded") == NodeNames{"token_embd", "position_embd"});
    CHECK(producers(model.graph, "blk.0.attn_norm")[0] == "embedded");
    CHECK(all<RopeTable>(model.graph).empty());
    CHECK(model.spec.dims.positions == 64);
    CHECK(open_tiny(folder, tiny_model()).spec.dims.positions == 0);
    f.set(arch + ".context_length", std::uint32_t{65});
    check_refused(folder, f, "position_embd.weight", "[32, 64], needs [32, 65]");
  }
}
