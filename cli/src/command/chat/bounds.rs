//! Bounds of a single prompt, typed before its text: `$0.20 fix the tests`, `/with rye.fetch.* explain the build`.

use std::sync::Arc;

use rye_compiler::commands::{BUILT_IN_COMMANDS, split_command};
use rye_compiler::plan::Plan;
use rye_compiler::plan::narrow::narrow_grants;
use rye_compiler::report::render::table::group_thousands;
use rye_compiler::semantics::money::Nanos;
use rye_compiler::validate::find_unmatched_pattern;
use rye_engine::event::{ChatMode, PromptBounds, UserInput};
use rye_engine::live_state::LiveState;
use rye_engine::machine::prompt_bounds::read_only_grants;
use rye_engine::message::{ContentBlock, Message};
use rye_engine::preview::preview;
use serde_json::Value;

use crate::present::format_count;
use crate::workspace::Spaces;

/// Splits the bounds of a prompt from its text; `None` if the text has none.
///
/// # Errors
/// Returns the reason why the bounds are invalid.
pub fn split_bounds(typed: &str) -> Option<Result<(PromptBounds, String), String>> {
    let mut bounds = PromptBounds::default();
    let mut rest = typed;
    loop {
        if let Some((amount, text)) = split_amount(rest).filter(|_| bounds.spend.is_none()) {
            bounds.spend = Some(amount.to_u64());
            rest = text;
        } else if bounds.spend.is_none() && looks_like_amount(rest) {
            let word = rest.split_whitespace().next().unwrap_or_default();
            let before =
                if bounds.with.is_some() { "write the maximum cost before `/with`" } else { "type a space first" };
            return Some(Err(format!(
                "`{word}` is not a maximum cost: write `$0.20 TEXT`; if the text itself starts with an amount, {before}"
            )));
        } else if let Some(after) = split_word(rest, "/with").filter(|_| bounds.with.is_none()) {
            let (patterns, text) = split_patterns(after);
            if patterns.is_empty() || text.is_empty() {
                let reason = "/with needs capability patterns and a text: `/with rye.fetch.* explain the build`";
                return Some(Err(reason.to_owned()));
            }
            bounds.with = Some(patterns);
            rest = text;
        } else {
            break;
        }
    }
    if bounds.is_empty() {
        return None;
    }
    Some(match unbounded_command(rest) {
        Some(command) => Err(format!(
            "`{command}` is a command of the session, and the bounds of a prompt do not apply to it: type it without \
             them"
        )),
        None => Ok((bounds, rest.to_owned())),
    })
}

/// Returns the text after a word at the start of a text; `None` if the text does not start with the word.
fn split_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let after = text.strip_prefix(word).filter(|after| after.is_empty() || after.starts_with(char::is_whitespace));
    after.map(str::trim_start)
}

/// Splits the capability patterns at the start of a text from the text after them.
fn split_patterns(text: &str) -> (Vec<String>, &str) {
    let (mut rest, mut patterns) = (text, Vec::new());
    while let Some(pattern) = rest.split_whitespace().next().filter(|word| word.starts_with("rye.")) {
        patterns.push(pattern.to_owned());
        rest = rest.strip_prefix(pattern).unwrap_or_default().trim_start();
    }
    (patterns, rest)
}

/// Returns the command at the start of a text: `!`, or the name of a built-in command with its slash. `None` if the
/// text is a message.
fn unbounded_command(text: &str) -> Option<&str> {
    if text.starts_with('!') {
        return text.get(..1);
    }
    let (name, _) = split_command(text).filter(|(name, _)| BUILT_IN_COMMANDS.contains(name))?;
    text.get(..=name.len())
}

/// Splits `$AMOUNT` from the text after the amount. `None` if the text does not start with an amount, or if no text
/// follows.
fn split_amount(typed: &str) -> Option<(Nanos, &str)> {
    let (amount, text) = typed.strip_prefix('$')?.split_once(char::is_whitespace)?;
    let is_number = amount.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let amount = Nanos::parse(amount).ok().filter(|_| is_number)?;
    let text = text.trim_start();
    (!text.is_empty()).then_some((amount, text))
}

/// Reads an amount of dollars from a field of a request.
///
/// # Errors
/// Returns a message that states the accepted values, if the value is not a number, not above 0 or too large.
pub fn read_dollars(field: &str, value: &Value) -> Result<Nanos, String> {
    let amount = Nanos::from_json(value).ok().filter(|amount| *amount > Nanos::ZERO);
    amount.ok_or_else(|| {
        let shown = excerpt(value);
        format!("`{field}` must be a number of dollars above 0 and below 9 billion, such as 0.25, not `{shown}`")
    })
}

/// Reads the value of a raised limit, in the unit that the limit is stored in.
///
/// # Errors
/// Returns a message with the accepted limits or values, if `limit` is not the name of such a limit or `value` is not
/// valid.
pub fn read_raised_limit(limit: &str, value: &Value) -> Result<u64, String> {
    match limit {
        "spend" => read_dollars("value", value).map(Nanos::to_u64),
        "turns" | "tokens" | "spawns" | "duration_seconds" => {
            value.as_u64().filter(|value| *value > 0).ok_or_else(|| {
                format!("`value` must be a whole number above 0 for the limit `{limit}`, not `{}`", excerpt(value))
            })
        }
        _ => Err(format!(
            "`limit` must be `turns`, `tokens`, `spend`, `spawns` or `duration_seconds`, not `{}`",
            limit.escape_debug().take(MAX_EXCERPT_CHARS).collect::<String>()
        )),
    }
}

/// Maximum number of characters of an invalid value that an error message contains.
const MAX_EXCERPT_CHARS: usize = 60;

fn excerpt(value: &Value) -> String {
    value.to_string().chars().take(MAX_EXCERPT_CHARS).collect()
}

/// Returns true if a text starts with `$` and a number, which may be signed.
fn looks_like_amount(typed: &str) -> bool {
    let number = typed.strip_prefix('$').map(|rest| rest.trim_start_matches([' ', '+', '-', '.', ',']));
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Checks that the context window of the session's model can hold a text.
///
/// # Errors
/// If the text is too long, returns a message with the tokens of the text and of the context window.
pub fn check_fit(live: &LiveState, text: &str) -> Result<(), String> {
    let model = live.state.model(&live.plan);
    let window = model.context_window;
    // A token has at least one byte.
    if window == 0 || text.len() as u64 <= window {
        return Ok(());
    }
    let tokens = model.counted_by.count(text);
    if tokens <= window {
        return Ok(());
    }
    let (tokens, window) = (group_thousands(tokens), group_thousands(window));
    Err(format!(
        "not sent: the text has {tokens} tokens, and the context window of {} has {window}; shorten it, or save it as \
         a file that the model reads in parts",
        model.id
    ))
}

/// Returns a warning if a budget cannot pay for the first call of a prompt; `None` if the budget suffices. `after` is
/// the plan with the budget.
pub fn budget_warning(live: &LiveState, after: &Plan) -> Option<String> {
    let next_call = |plan: Plan| preview(&LiveState { plan: Arc::new(plan), ..live.clone() }, &UserInput::text("…"));
    next_call(after.clone()).limit.filter(|code| code == "spend_exceeded")?;
    let mut whole = after.clone();
    whole.limits.spend = after.session_limits.map_or(u64::MAX, |limits| limits.spend);
    let (price, budget) = (Nanos::from_u64(next_call(whole).worst_case), Nanos::from_u64(after.limits.spend));
    Some(format!(
        "warning: the next call may cost up to ${price}, and ${budget} cannot pay for it: prompts end before their first call"
    ))
}

/// Returns a warning if the conversation has images and the model of the next plan accepts none; `None` otherwise.
pub fn image_warning(live: &LiveState, after: &Plan) -> Option<String> {
    let blocks = live
        .state
        .conversation
        .messages
        .iter()
        .flat_map(|message| if let Message::User { content } = &**message { content.as_slice() } else { &[] });
    let count = blocks.filter(|block| matches!(block, ContentBlock::Image(_))).count();
    (count > 0 && !after.model.images).then(|| {
        let images = format_count(count as u64, "image");
        format!(
            "warning: {} accepts no images: its requests state that the {images} of the conversation were left out",
            after.model.id
        )
    })
}

/// Checks that each capability pattern in the bounds of a prompt matches an item of the project, the user or the
/// standard library.
///
/// # Errors
/// Returns the reason why the patterns are invalid, or why the project cannot be read.
pub fn check_patterns(spaces: &Spaces, bounds: &PromptBounds) -> Result<(), String> {
    let Some(with) = &bounds.with else { return Ok(()) };
    let world = spaces.open().map_err(|error| error.to_string())?;
    let Some(unmatched) = find_unmatched_pattern(&world, with) else { return Ok(()) };
    let suggestion = unmatched.suggestion.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(format!("`{}` matches no tool, directive, skill or knowledge{suggestion}", unmatched.pattern))
}

/// Checks that the bounds of a prompt lie within the bounds of its session. The maximum cost must be above 0, and each
/// capability pattern must match a grant.
///
/// # Errors
/// Returns the reason why the bounds are invalid.
pub fn check_bounds(live: &LiveState, bounds: &PromptBounds) -> Result<(), String> {
    let most = live.plan.limits.spend;
    match bounds.spend {
        Some(0) => return Err("the maximum cost of a prompt must be more than $0".to_owned()),
        Some(spend) if spend > most => {
            let (spend, most) = (Nanos::from_u64(spend), Nanos::from_u64(most));
            return Err(format!(
                "a prompt may spend at most ${most}, not ${spend}: raise the limit with /budget, or type a space first if ${spend} is part of the text"
            ));
        }
        Some(_) | None => {}
    }
    let Some(with) = &bounds.with else { return Ok(()) };
    let own = live.state.launch.as_ref().and_then(|launch| launch.grants.first()).map_or(&[][..], Vec::as_slice);
    let (mode, grants) = match live.state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default() {
        ChatMode::ReadOnly => (" in the mode `read-only`", read_only_grants(&live.plan, own)),
        ChatMode::Ask | ChatMode::Auto => ("", own.to_vec()),
    };
    let narrowed = narrow_grants(&grants, with);
    if let Some((pattern, grant)) = narrowed.overlapping.first() {
        return Err(format!(
            "`{pattern}` matches a part of the grant `{grant}` and capabilities outside the grant: narrow the pattern"
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
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_split_from_the_text_of_a_prompt() {
        let bounds = |spend: Option<u64>, with: &[&str]| PromptBounds {
            spend,
            with: Some(with.iter().map(|one| (*one).to_owned()).collect())
                .filter(|with: &Vec<String>| !with.is_empty()),
        };
        for (typed, spend, with, text) in [
            ("$0.20 fix the tests", Some(200_000_000), &[][..], "fix the tests"),
            ("$1 /review a.rs", Some(1_000_000_000), &[], "/review a.rs"),
            ("/with rye.fetch.* explain", None, &["rye.fetch.*"], "explain"),
            ("/with rye.fetch.* rye.execute.tool.a  do\nit", None, &["rye.fetch.*", "rye.execute.tool.a"], "do\nit"),
            ("$0.5 /with rye.fetch.* go", Some(500_000_000), &["rye.fetch.*"], "go"),
            ("/with rye.fetch.* $0.5 go", Some(500_000_000), &["rye.fetch.*"], "go"),
            ("$0.5 $9 is too much", Some(500_000_000), &[], "$9 is too much"),
            ("$0.5 /with rye.fetch.* $9x", Some(500_000_000), &["rye.fetch.*"], "$9x"),
            ("$0.5 /tmp is full", Some(500_000_000), &[], "/tmp is full"),
            ("$0.5 //context", Some(500_000_000), &[], "//context"),
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
        for (typed, command) in [
            ("$0.5 !ls", "`!`"),
            ("/with rye.fetch.* !!ls", "`!`"),
            ("$0.5 /context tools", "`/context`"),
            ("/with rye.fetch.* $0.5 /retry", "`/retry`"),
            ("/with rye.fetch.* /with rye.sign.* x", "`/with`"),
        ] {
            assert!(split_bounds(typed).unwrap().unwrap_err().starts_with(command), "{typed}");
        }
        assert!(split_bounds("/with rye.fetch.* $0.5x").unwrap().unwrap_err().contains("before `/with`"));
        for typed in ["/with", "/with x", "/with rye.fetch.*", "$1 /with rye.fetch.*"] {
            assert!(split_bounds(typed).unwrap().is_err(), "{typed}");
        }
    }

    #[test]
    fn amount_of_a_request_is_a_number_of_dollars_above_zero() {
        assert_eq!(read_dollars("spend", &json!(0.25)).map(Nanos::to_u64), Ok(250_000_000));
        for value in [json!(-1), json!(0), json!(1e-30), json!(1e300), json!("0.1"), json!([]), json!({}), json!(true)]
        {
            let error = read_dollars("spend", &value).unwrap_err();
            assert!(error.starts_with("`spend` must be a number of dollars above 0"), "{error}");
            assert!(error.ends_with(&format!("not `{value}`")), "{error}");
        }
    }

    #[test]
    fn raised_limit_has_a_known_name_and_a_value_above_zero() {
        assert_eq!(read_raised_limit("turns", &json!(9)), Ok(9));
        assert_eq!(read_raised_limit("spend", &json!(0.5)), Ok(500_000_000));
        for value in [json!(-1), json!(0), json!(1.5), json!("9"), json!(null), json!(1e30)] {
            for limit in ["turns", "tokens", "spawns", "duration_seconds"] {
                let error = read_raised_limit(limit, &value).unwrap_err();
                assert!(error.contains("`value` must be a whole number above 0"), "{error}");
            }
        }
        assert!(read_raised_limit("spend", &json!(-1)).unwrap_err().starts_with("`value` must be a number of dollars"));
        for limit in ["depth", "output", "", "Turns"] {
            assert!(read_raised_limit(limit, &json!(9)).unwrap_err().starts_with("`limit` must be `turns`"), "{limit}");
        }
    }
}
