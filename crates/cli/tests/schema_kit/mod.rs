//! Holds what a command printed against the schema in the reference: for every test that has a
//! document at hand.

use std::fs;

use serde_json::{Map, Value};

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Holds a document against its schema alone.
pub(crate) fn check_schema(document: &str) -> (String, Value) {
    let document = json(document);
    let name = document["schema"]
        .as_str()
        .unwrap()
        .strip_prefix("towline.")
        .unwrap();
    let mut paths = SCHEMAS
        .map(|place| format!("{place}/towline.{name}.json"))
        .into_iter();
    let schema = paths.find_map(|path| fs::read_to_string(path).ok());
    let schema = json(&schema.unwrap_or_else(|| panic!("no schema of {name}")));
    let mut wrong = Vec::new();
    compare(&document, &schema, &schema, "", &mut wrong);
    assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{document:#}");
    (name.to_owned(), document)
}

/// What in `value` is not as `schema` says: as much of JSON Schema as is generated here, and more
/// strictly: a field that the schema does not name is wrong.
fn compare(value: &Value, schema: &Value, root: &Value, at: &str, wrong: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointed = root.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return compare(value, pointed, root, at, wrong);
    }
    // Anything may stand here: a document within a document, which names its own schema.
    let fields = schema.as_object().into_iter().flatten();
    if !schema.is_null() && fields.filter(|(name, _)| *name != "description").count() == 0 {
        return;
    }
    let choices = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(choices) = choices {
        let fits = choices.iter().any(|choice| {
            let mut wrong = Vec::new();
            compare(value, choice, root, at, &mut wrong);
            wrong.is_empty()
        });
        if !fits {
            wrong.push(format!("{at}: none of the choices"));
        }
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{at}: {value} is not among {words:?}"));
    }
    if let Some(only) = schema.get("const")
        && only != value
    {
        wrong.push(format!("{at}: {value} is not {only}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_kind = |wanted: &Value| wanted == kind || (wanted == "number" && kind == "integer");
    let fits = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is_kind),
        Value::Null => true,
        wanted => is_kind(wanted),
    };
    if !fits {
        wrong.push(format!("{at}: {kind} is not {}", schema["type"]));
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let own = schema["prefixItems"].get(index);
                compare(
                    item,
                    own.unwrap_or(&schema["items"]),
                    root,
                    &format!("{at}/{index}"),
                    wrong,
                );
            }
        }
        Value::Object(fields) => compare_fields(fields, schema, root, at, wrong),
        _ => {}
    }
}

fn compare_fields(
    fields: &Map<String, Value>,
    schema: &Value,
    root: &Value,
    at: &str,
    wrong: &mut Vec<String>,
) {
    let others = &schema["additionalProperties"];
    for (name, field) in fields {
        let at = format!("{at}/{name}");
        match (schema["properties"].get(name), others) {
            (Some(known), _) => compare(field, known, root, &at, wrong),
            (None, Value::Object(_)) => compare(field, others, root, &at, wrong),
            (None, Value::Bool(true)) => {}
            (None, _) => wrong.push(format!("{at}: not in the schema")),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(required.as_str().unwrap()) {
            wrong.push(format!("{at}: {required} is missing"));
        }
    }
}

/// Where `cargo xtask docs` writes the schemas of what `towline` prints, and where that of a result
/// of `make bench` is.
const SCHEMAS: [&str; 2] = [
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/src/reference/schema"
    ),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench/schema"),
];
