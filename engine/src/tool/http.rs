//! Tools of `kind: http`: a call makes one request, which the tool file declares. Parameters are percent-encoded in the
//! URL and inserted as plain values in the body. Environment variables are used only where the declaration names them.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use rye_compiler::tool_spec::{self, ArgvPlaceholder, FillValues, HttpBody, HttpSpec};
use serde_json::{Map, Value, json};

use super::command::template_values;
use super::registry::ToolFile;
use super::web::{WebClient, WebRequest, WebResponse};
use super::{Invocation, Tool, ToolOutcome, environment};
use crate::BoxFuture;
use crate::json_faults::find_fault;

/// Maximum bytes of a response that are kept.
const MAX_BODY_BYTES: usize = 2 << 20;

/// An HTTP tool, ready to run.
#[derive(Debug, Clone)]
pub struct HttpTool {
    pub http: HttpSpec,
    pub file: ToolFile,
    pub timeout: Duration,
    /// Names of the environment variables that the tool file declares.
    pub environment: Vec<String>,
}

impl Tool for HttpTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let request = match self.request(&invocation) {
                Ok(request) => request,
                Err(message) => return ToolOutcome::error(message),
            };
            let timeout = self.timeout.min(invocation.timeout);
            let web = WebClient {
                hosts: invocation.net,
                local_hosts: invocation.local_hosts,
                timeout,
                max_bytes: MAX_BODY_BYTES,
            };
            match web.send(request).await {
                Ok(answer) => http_outcome(&answer),
                Err(message) => ToolOutcome::error(message),
            }
        })
    }
}

impl HttpTool {
    fn request(&self, invocation: &Invocation) -> Result<WebRequest, String> {
        let Value::Object(parameters) = &invocation.parameters else {
            return Err("the parameters must be an object".into());
        };
        let variables = environment::declared_variables(&self.environment);
        let runtime = template_values(&self.file, invocation);
        let given = FillValues { parameters, runtime: &runtime, environment: &variables };
        let url = tool_spec::fill_text(&self.http.url, given, &encode)
            .map_err(|e| e.to_string())?
            .ok_or("a parameter of the address is missing")?;
        if count_dot_segments(&url) > count_dot_segments(&self.http.url) {
            return Err("a value of the address is the segment `.` or `..`, which selects another path".into());
        }
        let url = Url::parse(&url).map_err(|e| format!("the address cannot be used: {e}"))?;
        let mut headers = HeaderMap::new();
        for (name, template) in &self.http.headers {
            let filled = tool_spec::fill_text(template, given, &|text| text.to_owned()).map_err(|e| e.to_string())?;
            // A header whose parameter is missing is left out.
            let Some(value) = filled else { continue };
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is not a valid header name"))?;
            let value = HeaderValue::from_str(&value)
                .map_err(|_| format!("the header `{name}` would contain invalid characters"))?;
            headers.insert(name, value);
        }
        let body = match &self.http.body {
            None => None,
            Some(HttpBody::Text(template)) => tool_spec::fill_text(template, given, &|text| text.to_owned())
                .map_err(|e| e.to_string())?
                .map(String::into_bytes),
            Some(HttpBody::Json(template)) => {
                headers.entry("content-type").or_insert(HeaderValue::from_static("application/json"));
                let value = fill_json_body(template, given)?.unwrap_or(Value::Null);
                Some(value.to_string().into_bytes())
            }
        };
        let method = Method::from_bytes(self.http.method.as_str().as_bytes()).map_err(|e| e.to_string())?;
        Ok(WebRequest { method, url, headers, body })
    }
}

/// Fills in a JSON template. A string that is a single placeholder, such as `{name}`, becomes the value of the
/// parameter, of any type. A string with a missing parameter becomes `None`, and the list or mapping that contains the
/// string omits it. The error is the reason why the template cannot be filled in.
fn fill_json_body(template: &Value, given: FillValues<'_>) -> Result<Option<Value>, String> {
    Ok(match template {
        Value::String(text) => {
            let lone = tool_spec::placeholders(text).map_err(|e| e.to_string())?;
            if let [ArgvPlaceholder::Parameter(name)] = lone.as_slice()
                && text.len() == name.len() + 2
                && let Some(value) = given.parameters.get(*name)
            {
                return Ok(Some(value.clone()));
            }
            tool_spec::fill_text(text, given, &|t| t.to_owned()).map_err(|e| e.to_string())?.map(Value::String)
        }
        Value::Array(items) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                out.extend(fill_json_body(item, given)?);
            }
            Some(Value::Array(out))
        }
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                if let Some(value) = fill_json_body(value, given)? {
                    out.insert(key.clone(), value);
                }
            }
            Some(Value::Object(out))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
    })
}

/// Percent-encodes a parameter for a URL, except for unreserved characters, so that the parameter cannot leave its part
/// of the URL.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.extend([format!("%{byte:02X}")]);
        }
    }
    out
}

/// Returns the number of path segments `.` and `..` of an address. Encoded dots count, because servers and URL parsers
/// decode them before they resolve the path.
fn count_dot_segments(url: &str) -> usize {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
    path.split('/').filter(|segment| matches!(*segment, "." | "..")).count()
}

fn http_outcome(answer: &WebResponse) -> ToolOutcome {
    let text = String::from_utf8_lossy(&answer.body);
    let content = match serde_json::from_str::<Value>(&text) {
        Ok(value) if !answer.cut && find_fault(&text).is_none() => value,
        Ok(_) | Err(_) => Value::String(text.into_owned()),
    };
    ToolOutcome {
        content,
        is_error: answer.status >= 400,
        details: json!({"status": answer.status, "content_type": answer.content_type, "cut": answer.cut}),
        was_refused: false,
    }
}

#[cfg(test)]
mod tests;
