//! All codes of diagnostics with their pages, for `rye explain`. Tests check that each page has an example that yields
//! its code, and that each code occurs in a test case.

/// A diagnostic code and the page that `rye explain` prints for the code.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// Topic and name: `extends::cycle`.
    pub code: &'static str,
    /// The page that `rye explain` prints, as Markdown: the meaning, the reason, an example and the fix.
    pub page: &'static str,
}

macro_rules! codes {
    ($($root:literal $topic:literal: $($name:literal)+;)+) => {
        /// Every code, in the form `topic::name`, sorted.
        pub const CODES: &[&str] = &[$($(concat!($topic, "::", $name)),+),+];
        /// Every code with its page, sorted.
        pub const ALL: &[Code] = &[$($(Code {
            code: concat!($topic, "::", $name),
            page: include_str!(concat!("../../../", $root, "/codes/", $topic, "/", $name, ".md")),
        }),+),+];
    };
}

codes! {
    "compiler" "capability": "acknowledges-nothing" "blocked" "dead-grant" "exceeds-base" "matches-nothing" "only-what-is-there"
        "opens-nothing" "outside-grant" "repeated" "too-complex" "unacknowledged" "ungranted-call" "whole-network";
    "compiler" "config": "asserts-nothing" "changes-nothing" "implausible" "invalid" "never-matches" "stale-server" "unknown-file";
    "compiler" "context": "continuation-grants" "duplicate" "file-too-long" "ignored-file" "not-restored" "repeated-paragraph"
        "resume-ceiling" "suppressed-and-declared" "suppresses-nothing" "unfilled-placeholder" "unknown-item" "unreached" "volatile-prefix";
    "compiler" "extends": "cycle" "too-deep" "unknown";
    "compiler" "hook": "always" "duplicate-id" "endless" "never" "never-in-run" "no-effect" "raises-nothing"
        "removes-nothing" "shadowed" "swallows-everything" "text-list" "ungranted" "unknown-call"
        "unknown-event" "unknown-fact" "unknown-parameter" "unknown-value" "untrusted-parameter" "wrong-action";
    "compiler" "interface": "choices" "endless-reminders" "missing-input" "missing-output" "required-default" "retyped" "type" "unknown-input" "unknown-output" "unused-input";
    "compiler" "item": "ambiguous" "escapes-space" "invalid-value" "missing" "name-mismatch" "repeated" "script-parameter" "script-result"
        "server-schema" "shadows" "shell-syntax" "signature" "silent" "stray" "unknown" "unknown-builtin" "unknown-call" "unknown-key" "unreadable" "untrusted-parameter" "unused-parameter";
    "compiler" "limit": "cannot-afford-one-turn" "invalid" "never-binds" "one-turn" "unknown" "unpriced";
    "compiler" "model": "other-provider" "same-fallback" "small-window" "two-models" "unfit-fallback" "unknown" "unpriced";
    "compiler" "palette": "collision" "describes-ungranted" "dropped" "name" "undescribed";
    "compiler" "plan": "not-total" "unbounded" "ungated" "unreachable";
    "compiler" "skill": "description" "dropped" "name" "no-description" "wants-more";
    "compiler" "spawn": "clipped-limit" "cycle" "exceeds-parent" "no-budget" "no-children" "over-budget" "unknown-output";
    "grammar" "syntax": "capability" "condition" "constant" "fence" "reference" "script" "template" "xml" "yaml";
    "compiler" "template": "arguments" "hidden" "ignored-arguments" "import" "placeholder" "shell";
}

impl Code {
    /// Returns the page with a heading that fits the severity of the code: the page of a warning or of advice states why
    /// rye reports the mistake, and not why rye refuses it.
    pub fn titled_page(&self) -> String {
        ["This is a warning", "This is advice", "This is not refused"].iter().fold(
            self.page.to_owned(),
            |page, severity| {
                let heading = |verb: &str| format!("## Why it is {verb}\n\n{severity}");
                page.replace(&heading("refused"), &heading("reported"))
            },
        )
    }
}

/// Returns the diagnostic code of this name, which may have the prefix `rye::`; `None` if there is no such code.
pub fn find_code(code: &str) -> Option<&'static Code> {
    let code = code.strip_prefix("rye::").unwrap_or(code);
    ALL.iter().find(|known| known.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_with_and_without_prefix() {
        let name = |code: &str| find_code(code).map(|found| found.code);
        assert_eq!(
            (name("rye::extends::cycle"), name("extends::cycle")),
            (name("extends::cycle"), Some("extends::cycle"))
        );
        assert_eq!(name("extends::circle"), None);
    }

    #[test]
    fn page_of_a_warning_has_the_heading_of_a_report() {
        let page = |code: &str| find_code(code).map(Code::titled_page).unwrap_or_default();
        assert!(page("context::not-restored").contains("## Why it is reported\n"));
        assert!(page("extends::cycle").contains("## Why it is refused\n"));
    }
}
