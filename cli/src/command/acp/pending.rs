//! Prompts of an ACP client that have no response yet, and the events that lead to the responses.

use std::collections::VecDeque;

use rye_engine::event::{CommandAction, Delivery, EventBody, MessageSource, PromptEnded, PromptStatus};

/// The outcome of a prompt, for the response to the client.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptOutcome {
    /// No turn was needed: a hook or a command handled the message.
    Handled,
    /// The session prompt that the message started or joined has ended, perhaps before the model read the message.
    Ended(PromptEnded),
    /// The message was withdrawn from the queue.
    Withdrawn,
}

/// The prompts of a client that have no response yet. `R` is the responder of a prompt.
///
/// Messages from other sources (such as `rye threads steer`) wait in the same queue as the client's prompts, so
/// `queued` contains all messages.
#[derive(Debug)]
pub struct PendingPrompts<R> {
    /// The prompts that have no response yet: the id of each prompt's message, and the responder of the request.
    prompts: Vec<(String, R)>,
    /// Accepted messages that the model has not read, oldest first.
    queued: VecDeque<(String, Delivery)>,
    /// Messages that the model has read during the current prompt.
    delivered: Vec<String>,
}

impl<R> Default for PendingPrompts<R> {
    fn default() -> Self {
        Self { prompts: Vec::new(), queued: VecDeque::new(), delivered: Vec::new() }
    }
}

impl<R> PendingPrompts<R> {
    /// Adds a prompt. `input` is the id of its message, and `responder` sends the response to the client.
    pub fn add(&mut self, input: String, responder: R) {
        self.prompts.push((input, responder));
    }

    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    /// Removes all prompts and returns their responders.
    pub fn take_all(&mut self) -> Vec<R> {
        std::mem::take(&mut self.prompts).into_iter().map(|(_, responder)| responder).collect()
    }

    /// Applies an event of the session. Returns the responders of the prompts that the event ends, oldest first, each
    /// with the outcome of the prompt.
    pub fn event(&mut self, body: &EventBody) -> Vec<(R, PromptOutcome)> {
        if let EventBody::UserInput(input) = body {
            if input.handled {
                return self.answer(std::slice::from_ref(&input.id), &PromptOutcome::Handled);
            }
            self.queued.push_back((input.id.clone(), input.delivery));
            // The message starts no prompt of its own, so the client gets the response now.
            if input.delivery == Delivery::NextTurn {
                return self.answer(std::slice::from_ref(&input.id), &PromptOutcome::Handled);
            }
        } else if let EventBody::CommandRan(ran) = body {
            let starts_prompt = ran.action != CommandAction::NextTurn && ran.action.delivery().is_some();
            if !starts_prompt {
                return self.answer(std::slice::from_ref(&ran.id), &PromptOutcome::Handled);
            }
        } else if let EventBody::CognitionIn(read) = body {
            self.read(read.source);
        } else if let EventBody::Retracted(retracted) = body {
            self.queued.retain(|(id, _)| *id != retracted.input);
            return self.answer(std::slice::from_ref(&retracted.input), &PromptOutcome::Withdrawn);
        } else if let EventBody::PromptEnded(ended) = body {
            return self.end_prompt(ended);
        }
        Vec::new()
    }

    /// Moves the oldest queued message of `source` to the delivered messages, because the model has read it.
    fn read(&mut self, source: MessageSource) {
        let delivery = match source {
            MessageSource::Prompt => Delivery::Prompt,
            MessageSource::Steer => Delivery::Steer,
            MessageSource::FollowUp => Delivery::FollowUp,
            MessageSource::NextTurn => Delivery::NextTurn,
            // Messages from these sources do not wait in `queued`. The first message of a continuing thread left the
            // queue in the earlier thread.
            MessageSource::Continuation | MessageSource::Nudge | MessageSource::ContinueReply | MessageSource::Hook => {
                return;
            }
        };
        let message = self.take_first(delivery);
        self.delivered.extend(message);
    }

    fn take_first(&mut self, delivery: Delivery) -> Option<String> {
        let at = self.queued.iter().position(|(_, queued)| *queued == delivery)?;
        self.queued.remove(at).map(|(id, _)| id)
    }

    fn end_prompt(&mut self, ended: &PromptEnded) -> Vec<(R, PromptOutcome)> {
        let mut over = std::mem::take(&mut self.delivered);
        if over.is_empty() {
            // The prompt ended before the model read its message.
            over.extend(self.take_first(Delivery::Prompt));
        }
        let is_late = |delivery: Delivery| matches!(delivery, Delivery::Steer | Delivery::FollowUp);
        let late: Vec<(String, Delivery)> =
            self.queued.iter().filter(|(_, delivery)| is_late(*delivery)).cloned().collect();
        self.queued.retain(|(_, delivery)| !is_late(*delivery));
        match ended.status {
            // Each message that arrived after the last turn becomes a prompt, steering messages first.
            PromptStatus::Done => {
                let of = |wanted: Delivery| late.iter().filter(move |(_, delivery)| *delivery == wanted);
                let prompts: Vec<(String, Delivery)> = of(Delivery::Steer)
                    .chain(of(Delivery::FollowUp))
                    .map(|(id, _)| (id.clone(), Delivery::Prompt))
                    .collect();
                self.queued = prompts.into_iter().chain(std::mem::take(&mut self.queued)).collect();
            }
            PromptStatus::Interrupted | PromptStatus::Limit | PromptStatus::Error => {
                over.extend(late.into_iter().map(|(id, _)| id));
            }
        }
        self.answer(&over, &PromptOutcome::Ended(ended.clone()))
    }

    /// Removes the prompts whose messages have the ids in `inputs`. Returns the responder of each removed prompt, with
    /// `outcome`.
    fn answer(&mut self, inputs: &[String], outcome: &PromptOutcome) -> Vec<(R, PromptOutcome)> {
        let (over, open) = std::mem::take(&mut self.prompts).into_iter().partition(|(id, _)| inputs.contains(id));
        self.prompts = open;
        let over: Vec<(String, R)> = over;
        over.into_iter().map(|(_, responder)| (responder, outcome.clone())).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_engine::event::{AcceptedInput, CognitionIn, InputSource, PromptBounds, RetractedInput};
    use rye_engine::message::Message;
    use rye_engine::thread::Cost;

    use super::*;

    fn accepted(id: &str, delivery: Delivery) -> EventBody {
        EventBody::UserInput(Box::new(AcceptedInput {
            id: id.to_owned(),
            delivery,
            source: InputSource::Rpc,
            raw: id.to_owned(),
            text: id.to_owned(),
            images: Vec::new(),
            expansions: Vec::new(),
            handled: false,
            reply: None,
            bounds: PromptBounds::default(),
        }))
    }

    fn read(source: MessageSource) -> EventBody {
        EventBody::CognitionIn(CognitionIn { source, message: Message::user("text") })
    }

    fn ended(status: PromptStatus) -> EventBody {
        EventBody::PromptEnded(Box::new(PromptEnded {
            partial_reply: String::new(),
            prompt: 1,
            status,
            code: None,
            message: None,
            cost: Cost::default(),
            unsent: Vec::new(),
        }))
    }

    /// Passes events to the prompts `a`, `b` and `c`, and returns the prompts that each event ends.
    fn ends(events: &[EventBody]) -> Vec<Vec<&'static str>> {
        let mut pending = PendingPrompts::default();
        for id in ["a", "b", "c"] {
            pending.add(id.to_owned(), id);
        }
        events.iter().map(|event| pending.event(event).into_iter().map(|(id, _)| id).collect()).collect()
    }

    #[test]
    fn messages_that_the_model_read_end_with_their_prompt() {
        let found = ends(&[
            accepted("a", Delivery::Prompt),
            read(MessageSource::Prompt),
            accepted("other", Delivery::Steer),
            accepted("b", Delivery::Steer),
            accepted("c", Delivery::Prompt),
            read(MessageSource::Steer),
            read(MessageSource::Steer),
            ended(PromptStatus::Done),
            read(MessageSource::Prompt),
            ended(PromptStatus::Done),
        ]);
        assert_eq!(found.concat(), ["a", "b", "c"]);
        assert_eq!((found[7].as_slice(), found[9].as_slice()), (["a", "b"].as_slice(), ["c"].as_slice()));
    }

    #[test]
    fn late_messages_become_prompts_and_those_of_an_interrupted_prompt_end_with_it() {
        let begin = [
            accepted("a", Delivery::Prompt),
            read(MessageSource::Prompt),
            accepted("b", Delivery::FollowUp),
            accepted("c", Delivery::Steer),
        ];
        let done = [&begin[..], &[ended(PromptStatus::Done), read(MessageSource::Prompt), ended(PromptStatus::Done)]];
        assert_eq!(ends(&done.concat())[4..], [vec!["a"], vec![], vec!["c"]]);
        let interrupted = [&begin[..], &[ended(PromptStatus::Interrupted)]].concat();
        assert_eq!(ends(&interrupted)[4], ["a", "b", "c"]);
    }

    #[test]
    fn prompt_that_ends_before_its_message_is_read_is_answered_and_a_withdrawn_message_too() {
        let withdrawn = EventBody::Retracted(RetractedInput { input: "b".to_owned() });
        let found = ends(&[
            accepted("a", Delivery::Prompt),
            accepted("b", Delivery::Prompt),
            withdrawn,
            ended(PromptStatus::Error),
        ]);
        assert_eq!(found, [vec![], vec![], vec!["b"], vec!["a"]]);
    }
}
