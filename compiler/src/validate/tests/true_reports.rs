//! Tests of reports that a right file must not get, and of mistakes that several checks notice: one report, at the
//! mistake, with a help that ends it.

use super::*;

#[test]
fn knowledge_that_a_grant_executes_is_reached() {
    let permissions = |grant: &str| {
        let grants = format!(
            "<permissions><execute>{grant}</execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>"
        );
        directive(project(), "leaf", "", &grants, "x").project(".ai/knowledge/team/r1.md", "One rule.")
    };
    assert_eq!(codes(&permissions("<knowledge>team.r1</knowledge>")), Vec::<&str>::new());
    assert_eq!(codes(&permissions("<knowledge>team.*</knowledge>")), Vec::<&str>::new());
    assert!(codes(&permissions("<knowledge>lib.*</knowledge>")).contains(&"context::unreached"));
    assert!(codes(&permissions("<tool>rye.bash.bash</tool>")).contains(&"context::unreached"));
}
