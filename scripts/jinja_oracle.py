"""What a chat template must render to: Python's Jinja2 in the environment that the transformers package sets up, and our
own engine beside it, both behind one interface."""

import datetime
import json
import re
import subprocess
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox

warnings.simplefilter("ignore", SyntaxWarning)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("reserved name")


def environment(now):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: now.strftime(format)
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


def render(template, context, now="2025-07-10T12:00:00"):
    """(text, None), or (None, what went wrong)."""
    try:
        env = environment(datetime.datetime.fromisoformat(now))
        text = env.from_string(template).render(**context)
        text.encode()  # lone surrogates are no text
        return ADDRESS.sub("", text), None
    except Exception as error:  # whatever a template can raise, a RecursionError included
        return None, f"{type(error).__name__}: {error}"


class Ours:
    """The program render_stream: one process for many templates."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, template, context, now="2025-07-10T12:00:00"):
        """(text, None, runs), or (None, what went wrong, None)."""
        context = {name: json.dumps(value) for name, value in context.items()}
        print(json.dumps({"template": template, "context": context, "now": now}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"render_stream ended with {self.process.wait()} at\n{template}\n{context}")
        answer = json.loads(line)
        return answer.get("text"), answer.get("error"), answer.get("runs")
