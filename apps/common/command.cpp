#include "common/command.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace llm::app {

Option* Option::type_name(const std::string& type) {
  option_->type_name(type);
  return this;
}

Option* Option::option_text(const std::string& text) {
  option_->option_text(text);
  return this;
}

Option* Option::group(const std::string& name) {
  option_->group(name);
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::take_last() {
  option_->take_last();
  return this;
}

Option* Option::one_value() {
  option_->allow_extra_args(false);
  return this;
}

Option* Option::trigger_on_parse() {
  option_->trigger_on_parse();
  return this;
}

Command::Command(std::unique_ptr<CLI::App> own, CLI::App* app, const Command* parent)
    : own_(std::move(own)), app_(app), parent_(parent) {}

Command::Command(const std::string& description) : own_(std::make_unique<CLI::App>(description)), app_(own_.get()) {}

Command::~Command() = default;

Option* Command::added(CLI::Option* option) { return options_.emplace_back(std::make_unique<Option>(*option)).get(); }

Option* Command::add_option(const std::string& names, std::string& target, const std::string& help) {
  return added(app_->add_option(names, target, help));
}

Option* Command::add_option(const std::string& names, std::optional<std::string>& target, const std::string& help) {
  return added(app_->add_option(names, target, help));
}

Option* Command::add_option(const std::string& names, std::vector<std::string>& target, const std::string& help) {
  return added(app_->add_option(names, target, help));
}

template <class T>
Option* Command::add_option_function(const std::string& names, const std::function<void(const T&)>& set,
                                     const std::string& help) {
  return added(app_->add_option_function<T>(names, set, help));
}
template Option* Command::add_option_function(const std::string&, const std::function<void(const std::string&)>&,
                                              const std::string&);
template Option* Command::add_option_function(const std::string&,
                                              const std::function<void(const std::vector<std::string>&)>&,
                                              const std::string&);

Option* Command::add_flag(const std::string& names, bool& target, const std::string& help) {
  return added(app_->add_flag(names, target, help));
}

Option* Command::add_flag_callback(const std::string& names, const std::function<void()>& set,
                                   const std::string& help) {
  return added(app_->add_flag_callback(names, set, help));
}

Command* Command::add_subcommand(const std::string& name, const std::string& help) {
  CLI::App* app = app_->add_subcommand(name, help);
  return subcommands_.emplace_back(new Command(nullptr, app, this)).get();
}

Command* Command::fallthrough() {
  app_->fallthrough();
  return this;
}

void Command::require_subcommand() { app_->require_subcommand(1); }

void Command::final_callback(const std::function<void()>& callback) {
  finals_.push_back(callback);
  app_->final_callback([this] {
    for (const std::function<void()>& final : finals_) final();
  });
}

std::size_t Command::times_given(const std::string& name) const { return app_->get_option(name)->count(); }
bool Command::parsed() const { return app_->parsed(); }

bool Command::has_parsed_subcommand() const { return !app_->get_subcommands().empty(); }

std::string Command::name() const { return app_->get_name(); }

std::vector<const Command*> Command::subcommands() const {
  std::vector<const Command*> list;
  for (const auto& command : subcommands_) list.push_back(command.get());
  return list;
}

}  // namespace llm::app
