//! Text in a body that looks like a placeholder but stays text, because only `{input:…}` is filled in (`language.md`
//! 6). The text has another word before the colon (`{inputs:name}`), or the braces of another template language around
//! an input's name (`{{name}}`). Code is skipped. In the texts of hooks, only `${…}` inserts a fact, so texts such as
//! `{turn}` and `$turn` are reported.

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, InterfaceError, closest};
use crate::item::{Directive, HookDecl};
use crate::plan::FieldType;
use crate::semantics::hook_point::{self, PathMeaning};
use crate::semantics::template::input_placeholders;
use rye_grammar::Span;
use rye_grammar::condition::Segment;
use rye_grammar::template::WhenMissing;

/// Words that mark a text in braces as a mistyped placeholder if they precede its colon: `{env:name}`. `input` is one
/// of them, because `{{input:name}}` and `{ input:name}` are no placeholders.
const FOREIGN_PREFIXES: [&str; 12] =
    ["env", "input", "inputs", "output", "outputs", "param", "params", "arg", "args", "var", "secret", "secrets"];

/// Maximum length in bytes of a name between braces.
const MAX_NAME_BYTES: usize = 160;

/// A text in braces, or in the delimiters of another template language, that was probably meant as a placeholder.
pub struct MistypedPlaceholder<'t> {
    /// The text as written, with its braces.
    pub text: &'t str,
    /// Byte offset of the text in the body.
    at: usize,
    /// The declared input that was probably meant; `None` if the text names none.
    pub input: Option<&'t str>,
}

/// Reports mistyped placeholders in the body of the last directive of the chain.
pub fn check(composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    check_marks(leaf, composed, found);
    for one in find_mistyped(leaf, &|name| composed.inputs.contains_key(name)) {
        let body = leaf.body.span;
        // The text of a `<process>` comes before the body, so offsets are not positions in the file.
        let verbatim = body.len() == leaf.body.node.len();
        let start = body.start as usize + one.at;
        let span = if verbatim { Span::new(body.source, start, start + one.text.len()) } else { body };
        found.push(InterfaceError::Lookalike { text: one.text.to_owned(), input: one.input.map(str::to_owned), span });
    }
}

/// Reports texts of a hook's action that look like placeholders of a fact.
pub fn check_hook(hook: &HookDecl, found: &mut Diagnostics) {
    let point = hook_point::row_of(hook.event);
    for one in &hook.placeholders.lookalikes {
        let is_of_fact = match point.resolve_path(&one.path) {
            PathMeaning::Fact(_) | PathMeaning::Input => true,
            PathMeaning::Open => {
                matches!(one.path.segments.first(), Some(Segment::Name(root)) if point.has_fact(root))
            }
            PathMeaning::Nothing => false,
        };
        if is_of_fact {
            let (text, path, span) = (one.text.clone(), one.path.to_string(), one.span);
            found.push(InterfaceError::FactLookalike { text, path, span });
        }
    }
}

/// Reports input placeholders that contain a mark of another template language: a `$` before the brace, or an operator
/// at the start of the default. A `$` before the placeholder of a numeric input is not reported, because it can be a
/// currency sign.
fn check_marks(leaf: &Directive, composed: &Composed, found: &mut Diagnostics) {
    let body = leaf.body.span;
    let is_verbatim = body.len() == leaf.body.node.len();
    for placeholder in input_placeholders(&leaf.body_template) {
        let Some(field) = composed.inputs.get(&placeholder.name) else { continue };
        let (name, span) = (placeholder.name.clone(), placeholder.span);
        if let WhenMissing::Default(default) = &placeholder.when_missing
            && let Some(mark) = ["|", "?", "-", "="].into_iter().find(|mark| default.starts_with(mark))
        {
            let plain = default.trim_start_matches(['|', '?', '-', '=', ' ']);
            // A minus before a digit is the sign of a number.
            if mark != "-" || !plain.starts_with(|c: char| c.is_ascii_digit()) {
                found.push(InterfaceError::MarkedDefault { name, default: default.clone(), plain: plain.into(), span });
            }
            continue;
        }
        let is_number = matches!(field.value.kind, FieldType::Integer | FieldType::Number);
        let before = (span.start.checked_sub(body.start)).and_then(|at| leaf.body.node.get(..at as usize));
        let has_dollar = is_verbatim && before.is_some_and(|text| text.ends_with('$') && !text.ends_with("\\$"));
        if has_dollar && !is_number {
            let span = Span { start: span.start - 1, ..span };
            found.push(InterfaceError::MarkedPlaceholder { name, span });
        }
    }
}

/// Returns every mistyped placeholder of a body; `is_input` returns true for declared names.
pub fn find_mistyped<'t>(directive: &'t Directive, is_input: &dyn Fn(&str) -> bool) -> Vec<MistypedPlaceholder<'t>> {
    let text = directive.body.node.as_str();
    // Searching every line is slow, so marks that the body does not contain are not searched for.
    let has = |mark: u8| text.as_bytes().contains(&mark);
    let (has_brace, has_other) = (has(b'{'), has(b'$') || has(b'%') || has(b'[') || text.contains("input:"));
    if !has_brace && !has_other {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (line, start) in lines_outside_code(text) {
        if has_brace {
            find_in_line(line, start, is_input, &mut found);
        }
        if has_other {
            find_other_marks(line, start, is_input, &mut found);
        }
    }
    found
}

/// Returns the lines of a text outside of fenced code, with their offsets.
pub fn lines_outside_code(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let (mut fence, mut next): (Option<&str>, usize) = (None, 0);
    text.split_inclusive('\n').filter_map(move |line| {
        let start = next;
        next += line.len();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => return Some((line, start)),
        }
        None
    })
}

/// Opening and closing delimiters of the placeholders of other template languages, except those with braces. The last
/// three are an input placeholder with the wrong brackets.
const OTHER_MARKS: [(&str, &str); 7] =
    [("$", ""), ("%", "%"), ("[[", "]]"), ("<%=", "%>"), ("<input:", ">"), ("[input:", "]"), ("(input:", ")")];

/// The name of the placeholder `$ARGUMENTS`, which other agents replace with all arguments of a command.
const ALL_ARGUMENTS: &str = "ARGUMENTS";

/// Adds to `found` the placeholders of other template languages without braces (`$name`, `%name%`) that name a declared
/// input, and the placeholder `$ARGUMENTS`. `start` is the offset of `line` in the body.
fn find_other_marks<'t>(
    line: &'t str,
    start: usize,
    is_input: &dyn Fn(&str) -> bool,
    found: &mut Vec<MistypedPlaceholder<'t>>,
) {
    for (open, close) in OTHER_MARKS {
        let (mut at, mut counted, mut in_code) = (0, 0, false);
        while let Some(from) = line.get(at..).and_then(|rest| rest.find(open)).map(|i| at + i) {
            at = from + open.len();
            in_code ^= line.get(counted..from).unwrap_or_default().matches('`').count() % 2 == 1;
            counted = from;
            let Some(rest) = line.get(at..) else { break };
            let name = rest.trim_start_matches(|c: char| c == ' ' && open.len() > 1);
            let length =
                name.bytes().take(MAX_NAME_BYTES).take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            let (name, after) = name.split_at(length);
            let after = if open.len() > 1 { after.trim_start_matches(' ') } else { after };
            if in_code || name.is_empty() || !after.starts_with(close) {
                continue;
            }
            let input = is_input(name).then_some(name);
            if input.is_none() && !(open == "$" && name == ALL_ARGUMENTS) {
                continue;
            }
            let end = line.len() - after.len() + close.len();
            if let Some(text) = line.get(from..end) {
                found.push(MistypedPlaceholder { text, at: start + from, input });
            }
            at = end;
        }
    }
}

fn find_in_line<'t>(
    line: &'t str,
    start: usize,
    is_input: &dyn Fn(&str) -> bool,
    found: &mut Vec<MistypedPlaceholder<'t>>,
) {
    let mut at = 0;
    // Only the backticks since the last brace are counted, so that a long line is not scanned again for each brace.
    let (mut counted, mut in_code) = (0, false);
    while let Some(open) = line.get(at..).and_then(|rest| rest.find('{')).map(|i| at + i) {
        at = open + 1;
        let (before, rest) = line.split_at(open);
        in_code ^= before.get(counted..).unwrap_or_default().matches('`').count() % 2 == 1;
        counted = open;
        if before.ends_with('\\') || in_code {
            continue;
        }
        let double = rest.starts_with("{{");
        let dollar = before.ends_with('$');
        if let Some(length) = block_tag_len(rest) {
            if let Some(text) = line.get(open..open + length) {
                found.push(MistypedPlaceholder { text, at: start + open, input: None });
            }
            at = open + length;
            continue;
        }
        let Some(close) = rest.bytes().take(MAX_NAME_BYTES).position(|byte| byte == b'}') else { continue };
        let inside = rest.get(if double { 2 } else { 1 }..close).unwrap_or_default();
        let end = close + if double && rest.get(close..).is_some_and(|r| r.starts_with("}}")) { 2 } else { 1 };
        // `${{ … }}` is probably an expression of a CI workflow, unless it names an input.
        let named = inside.trim().strip_prefix("inputs.").is_some_and(is_input);
        if double && dollar && !named {
            at = open + end;
            continue;
        }
        let Some(input) = intended_input(inside, double, dollar && !double, is_input) else { continue };
        let from = if dollar { open - 1 } else { open };
        if let Some(text) = line.get(from..open + end) {
            found.push(MistypedPlaceholder { text, at: start + from, input: input.0 });
        }
        at = open + end;
    }
}

/// Returns the length of a tag at the start of a text that opens a block of another template language (`{% if x %}`,
/// `{{#each list}}`); `None` if there is none.
fn block_tag_len(text: &str) -> Option<usize> {
    const WORDS: [&str; 9] = ["if", "for", "each", "unless", "with", "set", "include", "block", "macro"];
    let (inside, close) = match (text.strip_prefix("{%"), text.strip_prefix("{{#")) {
        (Some(inside), _) => (inside, "%}"),
        (None, Some(inside)) => (inside, "}}"),
        (None, None) => return None,
    };
    let end = inside.as_bytes().windows(2).take(MAX_NAME_BYTES).position(|pair| pair == close.as_bytes())?;
    let (word, _) = inside.get(..end)?.trim_start_matches(['-', ' ']).split_once(' ')?;
    WORDS.contains(&word).then(|| text.len() - inside.len() + end + close.len())
}

/// Decides if `inside`, a text in braces, is a mistyped placeholder. Returns `None` for plain text. For a mistyped
/// placeholder, returns the declared input that the text names; the inner `Option` is `None` if no declared input has
/// this name. `double` is true if two braces enclose the text, `dollar` if a `$` precedes the braces.
fn intended_input<'t>(
    inside: &'t str,
    double: bool,
    dollar: bool,
    is_input: &dyn Fn(&str) -> bool,
) -> Option<(Option<&'t str>,)> {
    let written = inside;
    let inside = inside.trim();
    let declared = |name: &'t str| is_input(name).then_some(name);
    // Input methods and editors write other colons: `{input：name}`, `{input﹕name}`, `{input∶name}`.
    let other_colon = ["：", "﹕", "∶", "꞉"].into_iter().find_map(|colon| inside.split_once(colon));
    if let Some((_, name)) = other_colon.filter(|(word, name)| word.trim() == "input" && is_name(name.trim())) {
        return Some((declared(name.trim()),));
    }
    if let Some((word, name)) = inside.split_once(':').filter(|_| !dollar) {
        let exact = written.starts_with("input:") && !double;
        // A misspelling of `input` counts only before the name of a declared input (`{imput:name}`).
        let is_slip = is_input(name) && closest(word, ["input", "inputs"]).is_some();
        let known = is_slip || FOREIGN_PREFIXES.contains(&word.to_ascii_lowercase().as_str());
        return (known && !exact && is_name(name)).then(|| (declared(name),));
    }
    let of_outputs = inside.strip_prefix("outputs.").or_else(|| inside.strip_prefix("output."));
    if of_outputs.is_some_and(is_name) && !dollar {
        return Some((None,));
    }
    let of_inputs = inside.strip_prefix("inputs.").or_else(|| inside.strip_prefix("input."));
    let separated =
        inside.strip_prefix("input").and_then(|rest| rest.strip_prefix([' ', '_', '-', '=', '/', ';', '>']));
    if let Some(name) = separated.map(str::trim).filter(|name| !is_input(inside) && is_input(name)) {
        return Some((Some(name),));
    }
    let name = of_inputs.unwrap_or(inside);
    let is_foreign = of_inputs.is_some() && !dollar && is_name(name);
    (is_foreign || is_input(name)).then(|| (declared(name),))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_in_line(line, 0, &|name| name == "topic", &mut found);
        found.into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn mistyped_placeholders_in_code_are_ignored() {
        assert_eq!(
            texts("`{topic}` {topic} `a` ${topic} `{{topic}}` {{ topic }}"),
            ["{topic}", "${topic}", "{{ topic }}"]
        );
        assert_eq!(texts("{ and {topic} and {topic"), ["{topic}"]);
        assert_eq!(texts("{input.other} {{ inputs.other }}"), ["{input.other}", "{{ inputs.other }}"]);
        assert_eq!(
            texts("{input topic} {input_topic} {input-topic} {input=topic} {input other} {input} {input_}"),
            ["{input topic}", "{input_topic}", "{input-topic}", "{input=topic}"]
        );
        assert_eq!(texts("{outputs.u} {{ output.u }} {outputs.u.v} ${outputs.u}"), ["{outputs.u}", "{{ output.u }}"]);
        assert_eq!(
            texts(
                "{% if topic %}x{% else %}{% endif %} {%- for a in b -%} {{#each list}} {{/each}} `{% if x %}` {% 5 %}"
            ),
            ["{% if topic %}", "{%- for a in b -%}", "{{#each list}}"]
        );
        assert!(
            texts("{{customer}} {customer} ${customer} ${{ github.ref }} {{ a b }} `{{customer}}` {{}}").is_empty()
        );
    }

    #[test]
    fn marks_of_other_languages_are_found() {
        let texts = |line: &'static str| {
            let mut found = Vec::new();
            find_other_marks(line, 0, &|name| name == "topic", &mut found);
            found.into_iter().map(|one| (one.text, one.input)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts("$topic %topic% [[ topic ]] <%= topic %> $ARGUMENTS"),
            [
                ("$topic", Some("topic")),
                ("$ARGUMENTS", None),
                ("%topic%", Some("topic")),
                ("[[ topic ]]", Some("topic")),
                ("<%= topic %>", Some("topic"))
            ]
        );
        assert_eq!(
            texts("<input:topic> [input:topic] (input:topic) <input:other> `<input:topic>`"),
            [("<input:topic>", Some("topic")), ("[input:topic]", Some("topic")), ("(input:topic)", Some("topic"))]
        );
        assert!(texts("`$topic` $topics 5 % topic % of $1 $HOME [[other]] `$ARGUMENTS` a[[topic]").is_empty());
    }

    #[test]
    fn very_long_line_is_scanned_in_linear_time() {
        for text in ["{", "{}", "`{", "{x"] {
            assert!(texts(&text.repeat(1 << 16)).is_empty(), "{text}");
        }
        assert_eq!(texts(&format!("{}{{topic}}", "{".repeat(1 << 16))).len(), 1);
    }
}
