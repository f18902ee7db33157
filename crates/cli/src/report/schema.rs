//! The schemas of JSON documents (JSON Schema 2020-12), generated from the structs that are
//! written. The comment on a field is its description.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::Value;

use super::{
    CaptureReport, ClockDocument, DemoDocument, Document, FileListing, FramesAdviseReport,
    FramesRecvReport, FramesSendReport, GroupMtuDocument, InterfacesReport, InterruptedDemo,
    Interval, LeftoversReport, LoadRecvReport, LoadSendReport, MtuReport, PlainReport,
    PublishReport, ReachDocument, RecvReport, RelayReport, ReplayReport, RttReflectReport,
    RttReport, SendReport, ServeReport, StatReport, StatsReport, StatsSweepReport, SubscribeReport,
    TcpConnectionLine, TcpServeReport, TcpWatchReport, TcpWritesReport, TopReport, UdpReport,
    UdpServeReport,
    json::{Envelope, MessageLine},
};
use crate::plan::{
    CapturePlan, ClockPlan, DemoPlan, FramesRecvPlan, FramesSendPlan, LoadRecvPlan, LoadSendPlan,
    MtuPlan, PlainPlan, Plan, PublishPlan, ReachPlan, RecvPlan, RelayPlan, ReplayPlan, RttPlotPlan,
    RttReflectPlan, RttRunPlan, StatsPlan, StatsSweepPlan, SubscribePlan, TcpServePlan,
    TcpWatchPlan, TcpWritesPlan, UdpPlotPlan, UdpRunPlan, UdpServePlan,
};

/// A kind of document.
pub(crate) struct Described {
    /// The text of the document's field `schema`.
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
}

/// Lists every kind of document that a command prints.
pub(crate) fn schemas() -> Vec<Described> {
    vec![
        of::<PublishReport>(),
        Described {
            schema: schema::<MessageLine<'_>>(MessageLine::SCHEMA, MessageLine::VERSION),
            name: MessageLine::SCHEMA,
        },
        of::<SubscribeReport>(),
        of::<LoadSendReport>(),
        of::<LoadRecvReport>(),
        of::<FramesSendReport>(),
        of::<FramesRecvReport>(),
        of::<FramesAdviseReport>(),
        of::<Interval>(),
        of::<SendReport>(),
        of::<FileListing>(),
        of::<PlainReport>(),
        of::<RecvReport>(),
        of::<LeftoversReport>(),
        of::<ServeReport>(),
        of::<CaptureReport>(),
        of::<ReplayReport>(),
        of::<StatsReport>(),
        of::<StatsSweepReport>(),
        of::<RelayReport>(),
        of::<RttReport>(),
        of::<RttReflectReport>(),
        of::<UdpReport>(),
        of::<UdpServeReport>(),
        of::<TcpConnectionLine>(),
        of::<TcpWatchReport>(),
        of::<TcpWritesReport>(),
        of::<TcpServeReport>(),
        of::<MtuReport>(),
        of::<GroupMtuDocument>(),
        of::<ReachDocument>(),
        of::<ClockDocument>(),
        of::<InterfacesReport>(),
        of::<TopReport>(),
        of::<StatReport>(),
        of::<DemoDocument>(),
        of::<InterruptedDemo>(),
        of_plan::<PublishPlan>(),
        of_plan::<SubscribePlan>(),
        of_plan::<LoadSendPlan>(),
        of_plan::<LoadRecvPlan>(),
        of_plan::<PlainPlan>(),
        of_plan::<FramesSendPlan>(),
        of_plan::<FramesRecvPlan>(),
        of_plan::<RecvPlan>(),
        of_plan::<CapturePlan>(),
        of_plan::<ReplayPlan>(),
        of_plan::<StatsPlan>(),
        of_plan::<StatsSweepPlan>(),
        of_plan::<RelayPlan>(),
        of_plan::<RttRunPlan>(),
        of_plan::<RttReflectPlan>(),
        of_plan::<RttPlotPlan>(),
        of_plan::<UdpRunPlan>(),
        of_plan::<UdpServePlan>(),
        of_plan::<UdpPlotPlan>(),
        of_plan::<TcpWatchPlan>(),
        of_plan::<TcpWritesPlan>(),
        of_plan::<TcpServePlan>(),
        of_plan::<MtuPlan>(),
        of_plan::<ReachPlan>(),
        of_plan::<ClockPlan>(),
        of_plan::<DemoPlan>(),
    ]
}

fn of<D: Document + JsonSchema>() -> Described {
    Described {
        name: D::SCHEMA,
        schema: schema::<D>(D::SCHEMA, D::VERSION),
    }
}

fn of_plan<P: Plan>() -> Described {
    Described {
        name: P::SCHEMA,
        schema: schema::<P>(P::SCHEMA, P::VERSION),
    }
}

fn schema<T: JsonSchema>(name: &'static str, version: u32) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<Envelope<'_, T>>();
    schema.insert("title".to_owned(), name.into());
    let meaning = T::json_schema(&mut schemars::SchemaGenerator::default());
    if let Some(meaning) = meaning.get("description") {
        schema.insert("description".to_owned(), meaning.clone());
    }
    inline(&mut schema);
    if let Some(properties) = schema.get_mut("properties") {
        properties["schema"] = serde_json::json!({
            "const": name, "description": "Which document this is.",
        });
        properties["version"] = serde_json::json!({
            "const": version,
            "description": "Grows with every change that an old reader would misread.",
        });
    }
    schema
}

/// Puts a definition in the place of a schema's root that only refers to it. The schema of a struct
/// with a single unnamed field has such a root.
fn inline(schema: &mut Schema) {
    let Some(Value::String(reference)) = schema.remove("$ref") else {
        return;
    };
    let whole = schema.pointer(reference.trim_start_matches('#')).cloned();
    for name in ["properties", "required"] {
        let part = whole.as_ref().map(|whole| whole[name].clone());
        match (schema.get_mut(name), part) {
            (Some(Value::Object(own)), Some(Value::Object(part))) => own.extend(part),
            (Some(Value::Array(own)), Some(Value::Array(part))) => own.extend(part),
            (own, part) => panic!("{name}: {own:?} and {part:?} are no object or list"),
        }
    }
}
