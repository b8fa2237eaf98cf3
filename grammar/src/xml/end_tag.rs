//! End tags: closes elements, and reports elements without an end tag and end tags without an element.

use super::Element;
use super::read::{TreeBuilder, xml_error};
use crate::text::{closest_word, shorten};

/// An end tag that was reported because no open element has its name.
pub(super) struct UnmatchedEnd {
    name: String,
    /// The offset of the innermost element that was open at the tag.
    element: u32,
    /// The index of the tag's error in the list of errors.
    error: usize,
}

impl TreeBuilder<'_> {
    /// Closes the innermost open element `name`. Reports the unclosed elements in it, or an end tag without an element.
    pub(super) fn close(&mut self, name: &str, start: usize, end: usize) {
        let Some(depth) = self.open.iter().rposition(|e| e.name.node == name) else {
            return self.report_unmatched_end(name, start, end);
        };
        let mut reported = false;
        while self.open.len() > depth {
            let Some(mut element) = self.open.pop() else { return };
            let inner = self.open.len() > depth;
            if inner {
                let is_in_its_like = self.open.last().is_some_and(|outer| outer.name.node == element.name.node);
                if is_in_its_like && !reported {
                    self.report_repeated_start(&element);
                    reported = true;
                } else if !reported || !is_like_its_inner(&element) {
                    let help = format!("add `</{}>` before `</{}>`", shorten(&element.name.node), shorten(name));
                    self.unclosed.push((element.name.node.clone(), self.errors.len()));
                    self.never_closed(&element, &help);
                }
            }
            element.span = element.span.join(self.span(start, if inner { start } else { end }));
            self.attach_element(element);
        }
    }

    /// Reports a start tag directly inside an element of the same name if both elements lack an end tag. The inner tag
    /// was probably meant as the end tag.
    fn report_repeated_start(&mut self, element: &Element) {
        let name = shorten(&element.name.node);
        let error = xml_error(
            element.name.span,
            format!("`<{name}>` is inside `<{name}>`, and neither is closed"),
            "starts a second one",
            Some(&format!("write `</{name}>` if this tag ends the element")),
        );
        self.errors.push(error.with_lost_content());
    }

    /// Reports an end tag that matches no open element. Two end tags may be swapped, or the name of the start tag or of
    /// the end tag may be misspelled. In case of a misspelling, the tag ends the innermost open element.
    fn report_unmatched_end(&mut self, name: &str, start: usize, end: usize) {
        if let Some(at) = self.unclosed.iter().rposition(|(unclosed, _)| unclosed == name) {
            let (_, index) = self.unclosed.remove(at);
            if let Some(error) = self.errors.get_mut(index) {
                error.message = format!("`</{}>` comes after the end tag of its parent element", shorten(name));
                error.help = Some("swap the two end tags: an element ends before its parent element ends".into());
            }
            return;
        }
        let open = self.open.last().map(|element| element.name.clone());
        if let Some(open) = &open
            && self.names.contains(&name)
            && !self.names.contains(&open.node.as_str())
            && is_misspelling(&open.node, name)
        {
            return self.correct_start(name, start, end);
        }
        let open = open.map(|open| open.node);
        if let Some(open) = open.as_deref().filter(|open| is_misspelling(name, open)) {
            let message = format!("`</{}>` does not end `<{}>`", shorten(name), shorten(open));
            let help = format!("write `</{}>`", shorten(open));
            let error = xml_error(self.span(start, end), message, "another name", Some(&help));
            self.errors.push(error.with_replacement(self.span(start, end), format!("</{open}>")));
            return self.close(open, start, end);
        }
        if let Some(element) = self.open.last().map(|element| element.span.start) {
            self.unmatched.push(UnmatchedEnd { name: name.to_owned(), element, error: self.errors.len() });
        }
        let message = format!("unmatched `</{}>`", shorten(name));
        let help = open.map(|open| format!("remove the tag, or add its start tag: `<{}>` is open", shorten(&open)));
        let help = help.unwrap_or_else(|| "remove the tag".to_owned());
        self.syntax_error(start, end, message, "no open element has this name", Some(&help));
    }

    /// Reports an element whose start tag has a misspelt name and whose end tag has the right one. Gives the element the
    /// right name and closes it.
    fn correct_start(&mut self, name: &str, start: usize, end: usize) {
        let tag = self.span(start, end);
        let Some(element) = self.open.last_mut() else { return };
        let message = format!("`<{}>` is closed by `</{}>`", shorten(&element.name.node), shorten(name));
        let help = format!("did you mean `<{}>`?", shorten(name));
        let error = xml_error(element.name.span, message, "another name", Some(&help)).with_secondary(tag);
        self.errors.push(error.with_replacement(element.name.span, name));
        name.clone_into(&mut element.name.node);
        self.close(name, start, end);
    }

    /// Reports an element without an end tag. If an end tag of another name was reported in the element, that tag was
    /// probably meant as the element's end tag. The error of that tag is then changed to name both tags.
    pub(super) fn never_closed(&mut self, element: &Element, help: &str) {
        let name = shorten(&element.name.node);
        if let Some(at) = self.unmatched.iter().position(|end| end.element == element.span.start) {
            let UnmatchedEnd { name: other, error, .. } = self.unmatched.remove(at);
            if let Some(error) = self.errors.get_mut(error) {
                let other = shorten(&other);
                error.message = format!("`<{name}>` is closed by `</{other}>`");
                "another name".clone_into(&mut error.label);
                error.help = Some(format!(
                    "the start tag and the end tag need the same name: write `</{name}>` here, or `<{other}>` as the start tag"
                ));
                error.other = Some(element.name.span);
                error.loses_content = true;
                return;
            }
        }
        let message = format!("`<{name}>` is never closed");
        self.errors.push(xml_error(element.name.span, message, "opened here", Some(help)).with_lost_content());
    }
}

/// Returns true if the last child of an element has the name of the element.
fn is_like_its_inner(element: &Element) -> bool {
    element.elements().last().is_some_and(|inner| inner.name.node == element.name.node)
}

/// Returns true if the name of a tag is probably a misspelling of another tag's name; false for very short names.
fn is_misspelling(name: &str, of: &str) -> bool {
    const MIN_LENGTH: usize = 3;
    name.len() >= MIN_LENGTH && of.len() > MIN_LENGTH && closest_word(name, &[of]).is_some()
}
