//! JSON into typed values: an error names the JSON path, an unknown key its nearest known one.

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

/// How much a key may resemble a known one before we say that it was meant (0 to 1).
const RESEMBLES: f64 = 0.6;

/// A value and what its text held besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<T> {
    /// The value.
    pub value: T,
    /// Unknown keys, each as a sentence.
    pub warnings: Vec<String>,
}

/// Why a text is no such value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// Nothing but white space.
    #[error("`$`: the input is empty")]
    Empty,
    /// No JSON, or a value of another type or range.
    #[error("`{path}`: {message}")]
    At {
        /// JSON path, from `$`.
        path: String,
        /// What is wrong, with line and column.
        message: String,
    },
}

impl JsonError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "pass a JSON object; `--example` prints one",
            Self::At { .. } => "mend the value at this path; `--schema` prints what belongs there",
        }
    }
}

/// A value as indented text.
pub fn write<T: Serialize>(value: &T) -> Result<String, String> {
    serde_json::to_string_pretty(value).map_err(|error| error.to_string())
}

/// The JSON schema of a type.
pub fn schema<T: schemars::JsonSchema>() -> Result<String, String> {
    write(&schemars::schema_for!(T))
}

/// Parses `text`, all of it.
pub fn parse<T: DeserializeOwned + Serialize>(text: &str) -> Result<Parsed<T>, JsonError> {
    if text.trim().is_empty() {
        return Err(JsonError::Empty);
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let mut unknown = Vec::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let value: Result<T, serde_json::Error> =
        serde_ignored::deserialize(tracked, |path| unknown.push(path.to_string()));
    let value = value.and_then(|value| json.end().map(|()| value));
    let value = value.map_err(|error| JsonError::At { path: rooted(&track.path()), message: error.to_string() })?;
    let known = serde_json::to_value(&value).unwrap_or(Value::Null);
    if let Some(path) = serde_json::from_str(text).ok().and_then(|given: Value| list_for_object(&given, &known)) {
        return Err(JsonError::At {
            path: format!("${path}"),
            message: "invalid type: a list, expected an object".into(),
        });
    }
    let warnings = unknown.iter().map(|path| warning(path, &known)).collect();
    Ok(Parsed { value, warnings })
}

fn rooted(path: &serde_path_to_error::Path) -> String {
    match path.to_string().as_str() {
        "." => "$".into(),
        path if path.starts_with('[') => format!("${path}"),
        path => format!("$.{path}"),
    }
}

/// The path of the first list that stands for an object: serde would take its items for the fields in order.
fn list_for_object(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Array(_), Value::Object(_)) => Some(String::new()),
        (Value::Object(given), Value::Object(known)) => given
            .iter()
            .find_map(|(key, value)| list_for_object(value, known.get(key)?).map(|path| format!(".{key}{path}"))),
        (Value::Array(given), Value::Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(i, (given, known))| list_for_object(given, known).map(|path| format!("[{i}]{path}"))),
        _ => None,
    }
}

/// Every key that `known` has is written out, `null` included, so its parent's keys are the known ones.
fn warning(path: &str, known: &Value) -> String {
    // serde_ignored writes `?` for an Option that it went through.
    let parts: Vec<&str> = path.split('.').filter(|part| *part != "?").collect();
    let (key, parents) = parts.split_last().unwrap_or((&"", &[]));
    let parent = parents.iter().try_fold(known, |value, part| match value {
        Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
        value => value.get(part),
    });
    let names = parent.and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys);
    let place = format!("`$.{}`", parts.join("."));
    match nearest(key, names.map(String::as_str)) {
        Some(name) => format!("{place} is not read; did you mean `{name}`?"),
        None => format!("{place} is not read"),
    }
}

/// The name most like `key`, if any is like it.
pub fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (strsim::normalized_damerau_levenshtein(key, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= RESEMBLES).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        inner: Option<Inner>,
        items: Vec<Inner>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        max_num_seqs: u32,
    }

    fn message(text: &str) -> String {
        parse::<Outer>(text).map_or_else(|error| error.to_string(), |parsed| format!("{parsed:?}"))
    }

    #[test]
    fn an_error_names_the_path() {
        assert_eq!(message("  "), "`$`: the input is empty");
        assert!(message("[1]").starts_with("`$"), "{}", message("[1]"));
        assert_eq!(message("[null,[]]"), "`$`: invalid type: a list, expected an object");
        assert_eq!(
            message(r#"{"inner":null,"items":[[1]]}"#),
            "`$.items[0]`: invalid type: a list, expected an object"
        );
        assert!(message(r#"{"items":[{"max_num_seqs":-1}]}"#).starts_with("`$.items[0].max_num_seqs`: invalid value"));
        assert!(message(r#"{"inner":{"max_num_seqs":NaN},"items":[]}"#).starts_with("`$.inner.max_num_seqs`: "));
        assert!(message(r#"{"inner":null,"items":[]} x"#).contains("trailing characters"));
        assert!(message(r#"{"inner":null}"#).contains("missing field `items`"));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_nearest() {
        let text = r#"{"inner":{"max_num_seq":1,"max_num_seqs":1},"items":[{"zebra":0,"max_num_seqs":2}],"itens":0}"#;
        let warnings = parse::<Outer>(text).map(|parsed| parsed.warnings);
        let wanted = [
            "`$.inner.max_num_seq` is not read; did you mean `max_num_seqs`?",
            "`$.items.0.zebra` is not read",
            "`$.itens` is not read; did you mean `items`?",
        ];
        assert_eq!(warnings, Ok(wanted.map(String::from).to_vec()));
    }
}
