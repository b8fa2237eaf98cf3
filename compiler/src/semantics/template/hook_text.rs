//! Text of hooks, which may hold both kinds of placeholders: `{input:…}` is filled first, then `${…}`, each in one
//! pass.

use rye_grammar::template::{InputPlaceholder, InputsPart, Placeholder, Template, TemplatePart, parse, parse_inputs};
use rye_grammar::{SourceId, Span, SyntaxError, SyntaxKind};
use serde_json::{Map, Value};

use super::{MissingInput, TemplateText, fill_input, input_placeholders};

/// A text with `${…}` placeholders that may hold `{input:…}` placeholders anywhere, also inside a fallback.
#[derive(Debug, Clone, PartialEq)]
pub struct HookText {
    template: Template,
    inputs: Vec<InputPlaceholder>,
    /// A character that the text of the hook does not contain. In `template`, an `{input:…}` placeholder is written as
    /// its index in `inputs`, with this character before and after the index.
    mark: char,
}

impl TemplateText for HookText {
    fn parse(source: SourceId, text: &str, base: usize) -> Result<Self, SyntaxError> {
        let pieces = parse_inputs(source, text, base)?;
        let inputs: Vec<InputPlaceholder> = input_placeholders(&pieces).cloned().collect();
        if inputs.is_empty() {
            let plain: String = pieces.parts.iter().map(literal).collect();
            let template = if plain == text {
                parse(source, text, base)?
            } else {
                parse(source, &plain, base).map_err(|error| error.within(Span::new(source, base, base + text.len())))?
            };
            return Ok(Self { template, inputs, mark: '\u{E000}' });
        }
        let whole = Span::new(source, base, base + text.len());
        let Some(mark) = ('\u{E000}'..='\u{F8FF}').find(|c| !text.contains(*c)) else {
            return Err(SyntaxKind::Template.error(
                whole,
                "the text contains every private-use character of Unicode",
                "no free delimiter",
            ));
        };
        let mut marked = String::with_capacity(text.len());
        let mut number = 0usize;
        for part in &pieces.parts {
            match part {
                InputsPart::Text(literal) => marked.push_str(literal),
                InputsPart::Input(_) => {
                    marked.extend([mark.to_string(), number.to_string(), mark.to_string()]);
                    number += 1;
                }
            }
        }
        // Offsets in the marked text are not offsets in the source, so errors and placeholders get the span of the
        // whole text.
        let mut template = parse(source, &marked, base).map_err(|error| error.within(whole))?;
        template.set_span(whole);
        Ok(Self { template, inputs, mark })
    }

    fn set_span(&mut self, to: Span) {
        self.template.set_span(to);
        for placeholder in &mut self.inputs {
            placeholder.span = to;
        }
    }

    fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        super::placeholders(&self.template)
    }
}

impl HookText {
    pub fn inputs(&self) -> &[InputPlaceholder] {
        &self.inputs
    }

    /// Fills the `{input:…}` placeholders. Inserted text is never scanned again: the result contains only the `${…}`
    /// placeholders that the author wrote.
    ///
    /// # Errors
    /// Returns the first required input without a value.
    pub fn bind_inputs(&self, inputs: &Map<String, Value>) -> Result<Template, MissingInput> {
        if self.inputs.is_empty() {
            return Ok(self.template.clone());
        }
        let parts = self.template.parts.iter().map(|part| match part {
            TemplatePart::Text(text) => Ok(TemplatePart::Text(self.fill_marks(text, inputs)?)),
            TemplatePart::Placeholder(placeholder) => {
                let fallback = placeholder.fallback.as_ref().map(|text| self.fill_marks(text, inputs)).transpose()?;
                Ok(TemplatePart::Placeholder(Placeholder { fallback, ..placeholder.clone() }))
            }
        });
        Ok(Template { parts: parts.collect::<Result<_, _>>()? })
    }

    fn fill_marks(&self, text: &str, inputs: &Map<String, Value>) -> Result<String, MissingInput> {
        let mut filled = String::with_capacity(text.len());
        // Marks come in pairs: every second piece is an index.
        for (i, piece) in text.split(self.mark).enumerate() {
            match piece.parse().ok().and_then(|n: usize| self.inputs.get(n)) {
                Some(placeholder) if i % 2 == 1 => filled.push_str(&fill_input(placeholder, inputs)?),
                _ => filled.push_str(piece),
            }
        }
        Ok(filled)
    }
}

fn literal(part: &InputsPart) -> &str {
    match part {
        InputsPart::Text(text) => text,
        InputsPart::Input(_) => "",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::{Rendered, render};
    use super::*;
    use crate::semantics::facts::Facts;
    use serde_json::json;

    fn filled(text: &str, inputs: &Value) -> Value {
        let mut facts = Facts::new();
        facts.set("model", json!("m"));
        let text = HookText::parse(SourceId(0), text, 0).unwrap();
        match render(&text.bind_inputs(inputs.as_object().unwrap()).unwrap(), &facts) {
            Rendered::Value(value) => value,
            Rendered::Pending(paths) => panic!("{paths:?}"),
        }
    }

    #[test]
    fn inserted_inputs_are_not_scanned_again() {
        let inputs = json!({"x": "${model}", "d": "$", "n": 3});
        assert_eq!(filled("{input:x} ${model}", &inputs), json!("${model} m"));
        assert_eq!(filled("{input:d}{model}", &inputs), json!("${model}"));
        assert_eq!(filled("${gone || \"a {input:n} b\"}", &inputs), json!("a 3 b"));
        assert_eq!(filled("${input:n}", &inputs), json!("$3"));
        assert_eq!(filled("${model}", &inputs), json!("m"));
        assert_eq!(filled("\\{input:x}", &inputs), json!("{input:x}"));
        assert_eq!(filled("\u{E000}0\u{E000}{input:n}", &inputs), json!("\u{E000}0\u{E000}3"));
    }

    #[test]
    fn errors_have_source_spans() {
        let missing = HookText::parse(SourceId(0), "a {input:gone}", 10).unwrap().bind_inputs(&Map::new()).unwrap_err();
        assert_eq!((missing.name.as_str(), missing.span), ("gone", Span::new(SourceId(0), 12, 24)));
        assert!(HookText::parse(SourceId(0), "{input:n} ${", 0).is_err());
        assert!(HookText::parse(SourceId(0), "${inputs.{input:n}}", 0).is_err());
    }
}
