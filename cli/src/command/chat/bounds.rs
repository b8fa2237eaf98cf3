//! Bounds of a single prompt, typed before its text: `$0.20 fix the tests`, `/with rye.fetch.* explain the build`.

use rye_compiler::plan::narrow::narrow_grants;
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{ChatMode, PromptBounds};
use rye_engine::live_state::LiveState;
use rye_engine::machine::prompt_bounds::read_only_grants;

/// Splits the bounds of a prompt from its text; `None` if the text has none.
///
/// # Errors
/// Returns the reason why the bounds are invalid.
pub fn split_bounds(typed: &str) -> Option<Result<(PromptBounds, String), String>> {
    let mut bounds = PromptBounds::default();
    let mut rest = typed;
    if let Some((amount, text)) = split_amount(rest) {
        bounds.spend = Some(amount.to_u64());
        rest = text;
    } else if looks_like_amount(typed) {
        let word = typed.split_whitespace().next().unwrap_or_default();
        let reason = format!(
            "`{word}` is not a highest cost: write `$0.20 TEXT`; a text that starts with an amount needs a blank before it"
        );
        return Some(Err(reason));
    }
    let with = rest.strip_prefix("/with").filter(|after| after.is_empty() || after.starts_with(char::is_whitespace));
    if let Some(after) = with {
        rest = after.trim_start();
        while let Some(pattern) = rest.split_whitespace().next().filter(|word| word.starts_with("rye.")) {
            bounds.with.push(pattern.to_owned());
            rest = rest.strip_prefix(pattern).unwrap_or_default().trim_start();
        }
        if bounds.with.is_empty() || rest.is_empty() {
            let reason = "/with needs capability patterns and a text: `/with rye.fetch.* explain the build`";
            return Some(Err(reason.to_owned()));
        }
    }
    (!bounds.is_empty()).then(|| Ok((bounds, rest.to_owned())))
}

/// Splits `$AMOUNT` from the text after it; `None` if the text starts with no amount, or nothing follows the amount.
fn split_amount(typed: &str) -> Option<(Nanos, &str)> {
    let (amount, text) = typed.strip_prefix('$')?.split_once(char::is_whitespace)?;
    let is_number = amount.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let amount = Nanos::parse(amount).ok().filter(|_| is_number)?;
    let text = text.trim_start();
    (!text.is_empty()).then_some((amount, text))
}

/// Returns true if a text starts with `$` and a number, which may be signed.
fn looks_like_amount(typed: &str) -> bool {
    let number = typed.strip_prefix('$').map(|rest| rest.trim_start_matches([' ', '+', '-', '.', ',']));
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Checks that the bounds of a prompt lie within the bounds of its session, and leave the prompt some money and
/// capabilities.
///
/// # Errors
/// Returns the reason why the bounds are invalid.
pub fn check_bounds(live: &LiveState, bounds: &PromptBounds) -> Result<(), String> {
    let most = live.plan.limits.spend;
    match bounds.spend {
        Some(0) => return Err("the maximum cost of a prompt must be more than $0".to_owned()),
        Some(spend) if spend > most => {
            let (spend, most) = (Nanos::from_u64(spend), Nanos::from_u64(most));
            return Err(format!("a prompt may spend at most ${most}, not ${spend}; /budget raises the limit"));
        }
        Some(_) | None => {}
    }
    if bounds.with.is_empty() {
        return Ok(());
    }
    let own = live.state.launch.as_ref().and_then(|launch| launch.grants.first()).map_or(&[][..], Vec::as_slice);
    let (mode, grants) = match live.state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default() {
        ChatMode::ReadOnly => (" in the mode `read-only`", read_only_grants(&live.plan, own)),
        ChatMode::Ask | ChatMode::Auto => ("", own.to_vec()),
    };
    let narrowed = narrow_grants(&grants, &bounds.with);
    if let Some((pattern, grant)) = narrowed.overlapping.first() {
        return Err(format!(
            "`{pattern}` matches only a part of the grant `{grant}`, and also capabilities outside it: narrow it"
        ));
    }
    if let Some(pattern) = narrowed.unused.first() {
        let granted: Vec<String> = grants.iter().map(|grant| format!("`{}`", grant.pattern)).collect();
        let granted = if granted.is_empty() { "nothing".to_owned() } else { granted.join(", ") };
        return Err(format!("`{pattern}` matches no grant of the session{mode}; granted: {granted}"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_split_from_the_text_of_a_prompt() {
        let bounds = |spend: Option<u64>, with: &[&str]| PromptBounds {
            spend,
            with: with.iter().map(|one| (*one).to_owned()).collect(),
        };
        for (typed, spend, with, text) in [
            ("$0.20 fix the tests", Some(200_000_000), &[][..], "fix the tests"),
            ("$1 /review a.rs", Some(1_000_000_000), &[], "/review a.rs"),
            ("/with rye.fetch.* explain", None, &["rye.fetch.*"], "explain"),
            ("/with rye.fetch.* rye.execute.tool.a  do\nit", None, &["rye.fetch.*", "rye.execute.tool.a"], "do\nit"),
            ("$0.5 /with rye.fetch.* go", Some(500_000_000), &["rye.fetch.*"], "go"),
        ] {
            let expected = (bounds(spend, with), text.to_owned());
            assert_eq!(split_bounds(typed), Some(Ok(expected)), "{typed}");
        }
        for typed in ["$HOME is", "$", "$x1", " $1 x", "/without x", "text /with rye.* x"] {
            assert_eq!(split_bounds(typed), None, "{typed}");
        }
        for typed in ["$20", "$0.20fix it", "$0.01, do", "$1,5 x", "$ 1 x", "$-1 x", "$+1 x", "$1e9 x"] {
            assert!(split_bounds(typed).unwrap().unwrap_err().contains("write `$0.20 TEXT`"), "{typed}");
        }
        for typed in ["/with", "/with x", "/with rye.fetch.*", "$1 /with rye.fetch.*"] {
            assert!(split_bounds(typed).unwrap().is_err(), "{typed}");
        }
    }
}
