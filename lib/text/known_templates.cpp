#include "text/known_templates.h"

#include <string>

namespace llm {

std::span<const KnownTemplate> known_templates() {
  static constexpr KnownTemplate kTemplates[] = {
      {"chatml",
       "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
      {"gemma",
       "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
       "{% if m.role == 'system' %}{% set ns.system = m.content | trim + '\n\n' %}{% else %}"
       "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + ns.system + m.content | trim"
       " + '<end_of_turn>\n' }}{% set ns.system = '' %}{% endif %}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"},
      {"llama2",
       "{% set ns = namespace(system='') %}{% for m in messages %}"
       "{% if m.role == 'system' %}{% set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}"
       "{% elif m.role == 'user' %}{{ bos_token }}{{ '[INST] ' + ns.system + m.content + ' [/INST]' }}"
       "{% set ns.system = '' %}{% else %}{{ ' ' + m.content + ' ' }}{{ eos_token }}{% endif %}{% endfor %}"},
      {"llama3",
       "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' +"
       " m.content | trim + '<|eot_id|>' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"},
      {"phi3",
       "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"},
      {"vicuna",
       "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
       "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}"
       "{% else %}{{ 'ASSISTANT: ' + m.content }}{{ eos_token }}{{ '\n' }}{% endif %}{% endfor %}"
       "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"},
      {"zephyr",
       "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{{ eos_token }}{{ '\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"},
  };
  return kTemplates;
}

bool is_foreign_template(std::string_view name) {
  // Names of `--chat-template` in llama.cpp 0.5.0.
  constexpr std::string_view kNames =
      " bailing bailing-think bailing2 chatglm3 chatglm4 command-r deepseek deepseek2 deepseek3 deepseek-ocr exaone3 "
      "exaone4 exaone-moe falcon3 gigachat glmedge gpt-oss granite granite-4.0 granite-4.1 grok-2 hunyuan-dense "
      "hunyuan-moe kimi-k2 llama2-sys llama2-sys-bos llama2-sys-strip llama4 megrez minicpm mistral-v1 mistral-v3 "
      "mistral-v3-tekken mistral-v7 mistral-v7-tekken monarch openchat orion pangu-embedded phi4 rwkv-world seed_oss "
      "smolvlm solar-open vicuna-orca yandex ";
  return name.find(' ') == std::string_view::npos &&
         kNames.find(" " + std::string(name) + " ") != std::string_view::npos;
}

}  // namespace llm
