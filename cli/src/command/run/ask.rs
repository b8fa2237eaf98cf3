//! Asking the person at the terminal what a thread may do. What is remembered is a capability with a scope, this thread or
//! this project, never "always".

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::plan::Asked;
use rye_engine::engine::Asker;
use rye_engine::event::Approval;
use rye_engine::provider::BoxFuture;
use rye_engine::thread_id::ThreadId;
use rye_engine::trust::Trust;

use crate::args::Format;
use crate::report::printable;

/// The person at the terminal; `None` where nobody is.
pub fn terminal(format: Format, trust: Trust) -> Option<Arc<dyn Asker>> {
    let somebody = format == Format::Human && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    somebody.then(|| Arc::new(Terminal { asking: Arc::default(), trust }) as Arc<dyn Asker>)
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
struct Grant {
    thread: String,
    capability: String,
}

impl Asker for Terminal {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: Asked, what: &'a str) -> BoxFuture<'a, Approval> {
        let question = match asked {
            Asked::Call => format!("{thread} asks to use {what}. Allow it?"),
            Asked::Limit => format!("{thread} is at a limit: {what}. Go on?"),
        };
        // `rye.execute.tool.rye.bash.bash with {…}`
        let capability = what.split_once(" with ").filter(|_| asked == Asked::Call).map(|parts| parts.0.to_owned());
        let grant = capability.map(|capability| Grant { thread: thread.to_string(), capability });
        let (turn, trust) = (Arc::clone(&self.asking), self.trust.clone());
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                let mut given = turn.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(grant) = grant else { return put(&question, "[y/N]").approval() };
                if given.contains(&grant) || trust.now().is_ok_and(|now| now.allows(&grant.capability)) {
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
mod tests {
    use super::*;

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
