// What options are declared with. CLI11 is behind it, whose header takes seconds of every file that includes it: so
// only the few files do that ask CLI11 for what was declared. The functions have the names of CLI11's where they do the
// same.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace llm::app {

/// A declared option; what sets a property of it gives the option again.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option* type_name(const std::string&);
  Option* option_text(const std::string&);  ///< shown instead of the type
  Option* group(const std::string&);
  Option* required();
  Option* take_last();         ///< of several the last one counts
  Option* one_value();         ///< each time it is given, however many words follow
  Option* trigger_on_parse();  ///< callbacks run in the order of the command line

 private:
  CLI::Option* option_;
};

/// A program or one of its subcommands. Options and subcommands live as long as it.
class Command {
 public:
  explicit Command(const std::string& description);
  Command(const Command&) = delete;
  ~Command();

  Option* add_option(const std::string& names, std::string& target, const std::string& help);
  Option* add_option(const std::string& names, std::optional<std::string>& target, const std::string& help);
  Option* add_option(const std::string& names, std::vector<std::string>& target, const std::string& help);
  /// T: std::string, or a vector of them.
  template <class T>
  Option* add_option_function(const std::string& names, const std::function<void(const T&)>& set,
                              const std::string& help = {});
  Option* add_flag(const std::string& names, bool& target, const std::string& help);
  Option* add_flag_callback(const std::string& names, const std::function<void()>& set, const std::string& help = {});
  Command* add_subcommand(const std::string& name, const std::string& help);
  Command* fallthrough();  ///< options that it does not have are looked for in what it belongs to
  void require_subcommand();
  /// Called when all options are known; several in their order.
  void final_callback(const std::function<void()>&);

  bool parsed() const;                                     ///< of a subcommand: it was given
  std::size_t times_given(const std::string& name) const;  ///< an option
  bool has_parsed_subcommand() const;
  const Command* parent() const { return parent_; }
  std::string name() const;
  std::vector<const Command*> subcommands() const;
  CLI::App& parser() { return *app_; }
  const CLI::App& parser() const { return *app_; }

 private:
  Command(std::unique_ptr<CLI::App>, CLI::App*, const Command* parent);
  Option* added(CLI::Option*);

  std::unique_ptr<CLI::App> own_;  ///< of a program
  CLI::App* app_;
  const Command* parent_ = nullptr;
  std::vector<std::function<void()>> finals_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Command>> subcommands_;
};

}  // namespace llm::app
