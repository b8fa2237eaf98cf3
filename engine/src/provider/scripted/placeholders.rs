//! Placeholders for values that differ between two runs of the same script: the ids of the thread and of its children,
//! and the process id of a child that runs in the background.

use serde_json::{Map, Value};

use crate::exchange::ThreadPosition;

/// Placeholder for the thread's own id in the texts of a recorded request.
const THREAD_ID: &str = "${thread_id}";
/// Placeholder for the thread's own id in the arguments of a call.
const SELF_ID: &str = "${self.thread_id}";
/// Placeholder for the process id in the answer to an asynchronous call.
const PID: &str = "${pid}";

/// The ids of a thread and of its children, with their placeholders.
pub(crate) struct IdPlaceholders {
    /// Ids of the children, each with its placeholder. The longest ids come first, because an id can be the start of
    /// another id.
    children: Vec<(String, String)>,
    own: String,
}

impl IdPlaceholders {
    pub fn of(position: &ThreadPosition) -> Self {
        let mut children: Vec<(String, String)> = Vec::new();
        for child in &position.children {
            let name = format!("${{child.{}}}", child.spawn);
            if let Some(last) = child.last_thread_id.as_ref().filter(|last| **last != child.thread_id) {
                children.push((last.clone(), format!("${{child.{}.last}}", child.spawn)));
            }
            children.push((child.thread_id.clone(), name));
        }
        children.sort_by_key(|(id, _)| std::cmp::Reverse(id.len()));
        Self { children, own: position.thread.clone() }
    }

    /// Replaces the ids of the thread and of its children in a text of a request by placeholders. Also replaces the
    /// process id if the text is the answer to an asynchronous call that started a child.
    pub fn replace_in_text(&self, text: &str) -> String {
        let text = self.without_pid(text);
        self.replace(text, THREAD_ID)
    }

    /// Replaces the ids of the thread and of its children in the arguments of a call by placeholders.
    pub fn replace_in_arguments(&self, arguments: &Value) -> Value {
        map_strings(arguments, &|text| self.replace(text.to_owned(), SELF_ID))
    }

    /// Replaces the placeholders in the arguments of a call by the ids of the thread and of its children.
    pub fn fill_arguments(&self, arguments: &Value) -> Value {
        let fill = |text: &str| {
            let known = self.children.iter().fold(text.to_owned(), |text, (id, name)| text.replace(name.as_str(), id));
            if self.own.is_empty() { known } else { known.replace(SELF_ID, &self.own) }
        };
        map_strings(arguments, &fill)
    }

    fn replace(&self, text: String, own: &str) -> String {
        let mut pairs: Vec<(&str, &str)> =
            self.children.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
        if !self.own.is_empty() {
            let at = pairs.partition_point(|(id, _)| id.len() > self.own.len());
            pairs.insert(at, (self.own.as_str(), own));
        }
        pairs.into_iter().fold(text, |text, (id, name)| if text.contains(id) { text.replace(id, name) } else { text })
    }

    /// Replaces the process id by a placeholder in the answer to an asynchronous call that started a child.
    fn without_pid(&self, text: &str) -> String {
        let answer = || serde_json::from_str::<Map<String, Value>>(text).ok();
        let Some(mut answer) = text.contains("\"pid\"").then(answer).flatten() else { return text.to_owned() };
        let started = answer.get("thread_id").and_then(Value::as_str);
        if !started.is_some_and(|id| self.children.iter().any(|(child, _)| child == id)) {
            return text.to_owned();
        }
        answer.insert("pid".to_owned(), PID.into());
        Value::Object(answer).to_string()
    }
}

/// Applies a function to every string of a value, except keys.
fn map_strings(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(list) => list.iter().map(|value| map_strings(value, change)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), map_strings(value, change))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
