//! Holds what a command printed against its snapshot, too, which leaves open only what differs from
//! run to run and from machine to machine.

use serde_json::Value;

use crate::schema_kit::check_schema;

/// Holds a document against its schema and its snapshot.
pub(crate) fn check(document: &str) -> (String, Value) {
    let (name, document) = check_schema(document);
    check_as(&name, &document);
    (name, document)
}

/// Holds a document against the snapshot called `name`.
pub(crate) fn check_as(name: &str, document: &Value) {
    let shape = serde_json::to_string_pretty(&redacted("", document)).unwrap();
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("../snapshots");
    settings.bind(|| insta::assert_snapshot!(format!("documents__{name}"), shape));
}

/// The document with what differs from run to run and from machine to machine replaced: numbers,
/// times, names of hosts. Of the counters, which are many, the first stays.
fn redacted(name: &str, value: &Value) -> Value {
    match value {
        _ if VARYING.contains(&name) => "[varies]".into(),
        Value::Number(_) if name == "version" => value.clone(),
        Value::Number(_) => "[number]".into(),
        Value::String(text) if KEPT.contains(&name) => text.clone().into(),
        Value::String(_) => "[text]".into(),
        Value::Array(items) => items
            .iter()
            .map(|item| redacted(name, item))
            .take(1)
            .collect(),
        Value::Object(fields) => {
            let is_table = ["counters", "config"].contains(&name);
            let fields = fields
                .into_iter()
                .take(if is_table { 1 } else { usize::MAX });
            Value::Object(
                fields
                    .map(|(name, field)| (name.clone(), redacted(name, field)))
                    .collect(),
            )
        }
        value => value.clone(),
    }
}

const KEPT: [&str; 8] = [
    "schema", "group", "role", "state", "kind", "text", "set", "unit",
];

/// What a machine has or has not, and what some runs alone have.
const VARYING: [&str; 17] = [
    "drops",
    "limited_by",
    "remarks",
    // Of a clock.
    "ptp",
    "keepers",
    "is_synchronised",
    "has_leap",
    "has_one_way",
    // Of a host in a group.
    "frames",
    "queriers",
    "sees_wire",
    "reverse_paths",
    "reverse_path_drops",
    "chains",
    "outgoing_chains",
    "has_route",
    "has_reported",
];
