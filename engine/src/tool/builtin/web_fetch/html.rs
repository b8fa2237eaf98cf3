//! Conversion of HTML to text: tags are removed, links and headings become Markdown, scripts and styles are dropped.
//! Any input is accepted and read in one pass, without rendering.

/// Elements without readable content.
const SKIPPED_ELEMENTS: [&str; 6] = ["script", "style", "noscript", "template", "svg", "title"];
/// Elements that start a new line.
const BLOCK_ELEMENTS: [&str; 24] = [
    "p",
    "div",
    "br",
    "li",
    "ul",
    "ol",
    "tr",
    "table",
    "section",
    "article",
    "header",
    "footer",
    "nav",
    "main",
    "pre",
    "blockquote",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "dd",
];
/// Maximum characters of a link's address.
const MAX_LINK_CHARS: usize = 300;

/// Converts a page to text.
pub fn html_to_text(html: &str) -> String {
    let mut out = TextBuilder { lines: String::new(), pre: 0 };
    let mut links: Vec<Option<String>> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (text, from) = rest.split_at(at);
        out.push(text);
        if let Some(comment) = from.strip_prefix("<!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let is_tag = from
            .get(1..2)
            .is_some_and(|c| c.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')));
        if !is_tag {
            out.push("<");
            rest = from.get(1..).unwrap_or_default();
            continue;
        }
        let (tag, after) = split_tag(from);
        rest = after;
        let closing = tag.starts_with('/');
        let name: String = tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        let name = name.to_ascii_lowercase();
        if !closing && SKIPPED_ELEMENTS.contains(&name.as_str()) && !tag.ends_with('/') {
            rest = after_closing(rest, &name);
            continue;
        }
        if name == "pre" {
            out.pre = if closing { out.pre.saturating_sub(1) } else { out.pre + 1 };
        }
        if BLOCK_ELEMENTS.contains(&name.as_str()) {
            out.line();
        }
        match (name.as_str(), closing) {
            ("a", false) => {
                let target = attribute(tag, "href").filter(|h| h.starts_with("http") || h.starts_with('/'));
                if target.is_some() {
                    out.raw("[");
                }
                links.push(target);
            }
            ("a", true) => {
                if let Some(Some(target)) = links.pop() {
                    let shown: String = target.chars().take(MAX_LINK_CHARS).collect();
                    out.raw(&format!("]({shown})"));
                }
            }
            ("li", false) => out.raw("- "),
            ("td" | "th", true) => out.raw(" | "),
            (heading, false) if heading.len() == 2 && heading.starts_with('h') && heading != "hr" => {
                let level = heading.get(1..).and_then(|n| n.parse().ok()).unwrap_or(1);
                out.raw(&format!("{} ", "#".repeat(level)));
            }
            _ => {}
        }
    }
    out.push(rest);
    out.finish()
}

struct TextBuilder {
    lines: String,
    /// Number of open `<pre>` elements, in which white space is kept.
    pre: usize,
}

impl TextBuilder {
    /// Adds text between tags: decodes entities, and collapses white space outside of `<pre>`.
    fn push(&mut self, text: &str) {
        let text = decode_entities(text);
        if self.pre > 0 {
            self.lines.push_str(&text);
            return;
        }
        for c in text.chars() {
            if !c.is_whitespace() {
                self.lines.push(c);
            } else if !self.lines.is_empty() && !self.lines.ends_with([' ', '\n']) {
                self.lines.push(' ');
            }
        }
    }

    fn raw(&mut self, text: &str) {
        self.lines.push_str(text);
    }

    fn line(&mut self) {
        let kept = self.lines.trim_end_matches(' ').len();
        self.lines.truncate(kept);
        if !self.lines.is_empty() && !self.lines.ends_with("\n\n") {
            self.lines.push('\n');
        }
    }

    fn finish(self) -> String {
        let mut text = self.lines.trim().to_owned();
        text.push('\n');
        text
    }
}

/// Splits a text that starts with a tag into the inside of the tag and the text after the tag. A quoted `>` does not
/// end the tag.
fn split_tag(from: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, c) in from.char_indices().skip(1) {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '>') => return (from.get(1..at).unwrap_or_default(), from.get(at + 1..).unwrap_or_default()),
            (Some(_) | None, _) => {}
        }
    }
    // If a quote is not closed, the first `>` ends the tag.
    let inside = from.get(1..).unwrap_or_default();
    inside.split_once('>').unwrap_or((inside, ""))
}

/// Returns the text after the closing tag of the element `name`; empty if `text` contains no such tag.
fn after_closing<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = rest.get(at + 2..).unwrap_or_default();
        let closed = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if closed.eq_ignore_ascii_case(name) {
            return rest.split_once('>').map_or("", |(_, after)| after);
        }
    }
    ""
}

fn attribute(tag: &str, wanted: &str) -> Option<String> {
    let at = tag.to_ascii_lowercase().find(&format!("{wanted}="))?;
    let value = tag.get(at + wanted.len() + 1..)?;
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let text = match quote {
        Some(quote) => value.get(1..)?.split(quote).next()?,
        None => value.split_whitespace().next()?,
    };
    Some(decode_entities(text).chars().filter(|c| !c.is_control()).collect())
}

/// Decodes numeric character references and the most common named ones, such as `&amp;`. All other references stay
/// unchanged.
fn decode_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let entity =
            from.get(1..).unwrap_or_default().split(';').next().filter(|e| e.len() < 10 && from.len() > e.len() + 1);
        let decoded = entity.and_then(|e| match e {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some(' '),
            "ndash" => Some('–'),
            "mdash" => Some('—'),
            "hellip" => Some('…'),
            numeric => {
                let code = numeric.strip_prefix('#')?;
                let code = match code.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => code.parse().ok()?,
                };
                char::from_u32(code).filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
            }
        });
        if let (Some(c), Some(entity)) = (decoded, entity) {
            out.push(c);
            rest = from.get(entity.len() + 2..).unwrap_or_default();
        } else {
            out.push('&');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_converts_to_readable_text() {
        let page = "<!DOCTYPE html><html><head><title>T</title><script>if (a < b) { x('</p>') }</script></head>\
            <body><h1>Big &amp; small</h1><p>One\n  <b>two</b> <a href='/x?a=1&amp;b=2'>link &#x41;</a>.</p>\
            <!-- <p>hidden</p> --><ul><li>a<li>b</ul><pre>  kept\n   so</pre><style>p{}</style>1 < 2 &unknown; & end</body>";
        let text = html_to_text(page);
        assert_eq!(
            text,
            "# Big & small\n\nOne two [link A](/x?a=1&b=2).\n\n- a\n- b\n\n  kept\n   so\n1 < 2 &unknown; & end\n"
        );
    }

    #[test]
    fn text_follows_a_head_without_its_optional_end() {
        let page = "<html><head><title>T</title><meta charset=utf-8><body><header>Top</header><p>One</p></body></html>";
        assert_eq!(html_to_text(page), "Top\n\nOne\n");
        assert_eq!(html_to_text("<style>a{}</styles>b</style>c"), "c\n");
    }

    #[test]
    fn arbitrary_html_terminates() {
        for part in ["<", "<a", "<!--", "</", "<script>", "<a href=\"", "&", "&#x", "<pre>", "é<é"] {
            let text = html_to_text(&part.repeat(20_000));
            assert!(text.len() < 400_000);
        }
    }
}
