//! Asking a person what a thread may do: at the terminal, or where nobody is there by leaving the thread in the queue that
//! `rye threads approvals` lists. What is remembered is a capability with a scope, this thread or this project, never
//! "always".

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use clap::ValueEnum;
use rye_compiler::approvals::{AskedGrant, Unattended, is_vouched};
use rye_compiler::item::Items;
use rye_compiler::plan::Asked;
use rye_engine::disk_world::DiskWorld;
use rye_engine::engine::Asker;
use rye_engine::event::Approval;
use rye_engine::provider::BoxFuture;
use rye_engine::thread_id::ThreadId;
use rye_engine::trust::Trust;
use tokio::sync::Mutex;

use crate::args::Format;
use crate::report::printable;
use crate::space::Spaces;

/// What becomes of a call that the table of risks wants a person's word for, where nobody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// It passes
    Allow,
    /// The thread is suspended before it and waits for `rye threads approve`
    Queue,
    /// It is refused, and the thread goes on
    Deny,
}

impl From<Way> for Unattended {
    fn from(way: Way) -> Self {
        match way {
            Way::Allow => Self::Allow,
            Way::Queue => Self::Queue,
            Way::Deny => Self::Deny,
        }
    }
}

/// Whether a person can be asked at this terminal.
pub fn is_attended(format: Format) -> bool {
    format == Format::Human && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What a run without a terminal says first of calls that nobody acknowledged; `None` where there are none.
pub fn forewarning(asked: &[AskedGrant], unattended: Unattended) -> Option<String> {
    let grants: Vec<String> = asked
        .iter()
        .filter(|grant| !grant.vouched)
        .map(|grant| format!("`{}` ({})", grant.pattern, grant.tier))
        .collect();
    let otherwise = "`--unattended` and `approvals.unattended` say otherwise, `<acknowledge>` settles it";
    (!grants.is_empty()).then(|| {
        let told = unattended.told();
        format!(
            "nobody can be asked here: at a call of what is not acknowledged, {told}: {}; {otherwise}",
            grants.join(", ")
        )
    })
}

/// The person at the terminal, or what stands for one; `None` where everything passes. `given` is what a person has said
/// for the rest of a thread already.
pub fn asker(
    format: Format,
    spaces: &Spaces,
    unattended: Unattended,
    given: impl IntoIterator<Item = Grant>,
) -> Option<Arc<dyn Asker>> {
    let given: BTreeSet<Grant> = given.into_iter().collect();
    if is_attended(format) {
        return Some(Arc::new(Terminal { asking: Arc::new(Mutex::new(given)), trust: spaces.trust() }));
    }
    let otherwise = match unattended {
        Unattended::Queue => Approval::Suspended,
        Unattended::Deny => Approval::Refused,
        Unattended::Allow => return None,
    };
    Some(Arc::new(Nobody { given, spaces: spaces.clone(), otherwise }))
}

/// Nobody is there: what was allowed before counts, anything else gets the same answer.
struct Nobody {
    given: BTreeSet<Grant>,
    spaces: Spaces,
    otherwise: Approval,
}

impl Asker for Nobody {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: Asked, what: &'a str) -> BoxFuture<'a, Approval> {
        let answer = match (asked, Grant::asked(thread, what)) {
            // What a limit needs is a higher one, and only a person has it.
            (Asked::Limit, _) => Approval::Suspended,
            (Asked::Call, Some(grant)) if self.allows(&grant) => Approval::Approved,
            (Asked::Call, _) => self.otherwise,
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Nobody {
    fn allows(&self, grant: &Grant) -> bool {
        let vouched = |world: DiskWorld| is_vouched(&Items::new(&world), &grant.capability);
        is_given(&self.given, &self.spaces.trust(), grant) || self.spaces.open().is_ok_and(vouched)
    }
}

fn is_given(given: &BTreeSet<Grant>, trust: &Trust, grant: &Grant) -> bool {
    given.contains(grant) || trust.now().is_ok_and(|now| now.allows(&grant.capability))
}

/// Asks one question at a time.
struct Terminal {
    /// What was allowed for the rest of a thread.
    asking: Arc<Mutex<BTreeSet<Grant>>>,
    /// What was allowed for the project is remembered there.
    trust: Trust,
}

/// A capability that a thread was given by hand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub thread: String,
    pub capability: String,
}

impl Grant {
    /// What is asked for, of `rye.execute.tool.rye.bash.bash with {…}`.
    pub fn asked(thread: &ThreadId, what: &str) -> Option<Self> {
        let (capability, _) = what.split_once(" with ")?;
        Some(Self { thread: thread.to_string(), capability: capability.to_owned() })
    }
}

impl Asker for Terminal {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: Asked, what: &'a str) -> BoxFuture<'a, Approval> {
        let question = match asked {
            Asked::Call => format!("{thread} asks to use {what}. Allow it?"),
            Asked::Limit => format!("{thread} is at a limit: {what}. Go on?"),
        };
        let grant = Grant::asked(thread, what).filter(|_| asked == Asked::Call);
        let (turn, trust) = (Arc::clone(&self.asking), self.trust.clone());
        Box::pin(async move {
            // Whoever waits for the terminal holds no thread meanwhile.
            let mut given = turn.lock_owned().await;
            let answer = tokio::task::spawn_blocking(move || {
                let Some(grant) = grant else { return put(&question, "[y/N]").approval() };
                if is_given(&given, &trust, &grant) {
                    return Approval::Approved;
                }
                let answer = put(&question, "[y/N; t: in this thread, p: in this project]");
                match answer {
                    Answer::Thread => {
                        given.insert(grant);
                    }
                    Answer::Project => {
                        if let Err(error) = trust.remember(&grant.capability) {
                            writeln!(anstream::stderr().lock(), "not remembered: {error}").ok();
                        }
                    }
                    Answer::Once | Answer::No | Answer::Nobody => {}
                }
                answer.approval()
            });
            answer.await.unwrap_or(Approval::Suspended)
        })
    }
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Once,
    Thread,
    Project,
    No,
    /// There was none: the thread waits for one by mail.
    Nobody,
}

impl Answer {
    /// Only a clear yes is one.
    fn of(line: &str) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Self::Once,
            "t" | "thread" => Self::Thread,
            "p" | "project" => Self::Project,
            _ => Self::No,
        }
    }

    fn approval(self) -> Approval {
        match self {
            Self::Once | Self::Thread | Self::Project => Approval::Approved,
            Self::No => Approval::Refused,
            Self::Nobody => Approval::Suspended,
        }
    }
}

fn put(question: &str, answers: &str) -> Answer {
    let mut line = String::new();
    write!(anstream::stderr().lock(), "{} {answers} ", printable(question)).ok();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => Answer::Nobody,
        Ok(_) => Answer::of(&line),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A project without anything in it.
    fn nowhere() -> Spaces {
        Spaces { project: env!("CARGO_MANIFEST_DIR").into(), user: None, own: true }
    }

    #[test]
    fn where_nobody_is_only_what_was_given_before_passes() {
        let (thread, other) = (ThreadId::parse("a-1").unwrap(), ThreadId::parse("a-2").unwrap());
        let bash = "rye.execute.tool.rye.bash.bash with {\"command\":\"ls\"}";
        let given = Grant::asked(&thread, bash).unwrap();
        assert_eq!(given.capability, "rye.execute.tool.rye.bash.bash");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (unattended, otherwise) in [(Unattended::Queue, Approval::Suspended), (Unattended::Deny, Approval::Refused)]
        {
            let nobody = asker(Format::Json, &nowhere(), unattended, [given.clone()]).unwrap();
            let ask = |thread: &ThreadId, asked, what: &str| runtime.block_on(nobody.ask(thread, asked, what));
            assert_eq!(ask(&thread, Asked::Call, bash), Approval::Approved);
            assert_eq!(ask(&other, Asked::Call, bash), otherwise);
            assert_eq!(ask(&thread, Asked::Call, "rye.execute.tool.rye.bash.other with {}"), otherwise);
            assert_eq!(ask(&thread, Asked::Call, "nothing that is understood"), otherwise);
            assert_eq!(ask(&thread, Asked::Limit, "turns"), Approval::Suspended);
            // A child's own calls are judged when it makes them.
            assert_eq!(ask(&thread, Asked::Call, "rye.execute.directive.worker with {}"), Approval::Approved);
        }
        assert!(asker(Format::Json, &nowhere(), Unattended::Allow, []).is_none());
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        for (line, answer) in [
            ("y\n", Answer::Once),
            (" YES \n", Answer::Once),
            ("t\n", Answer::Thread),
            ("p\n", Answer::Project),
            ("\n", Answer::No),
            ("always\n", Answer::No),
            ("yy\n", Answer::No),
        ] {
            assert_eq!(Answer::of(line), answer, "{line:?}");
        }
    }
}
