//! A plan as JSON, for programs.

use serde_json::{Value, json};

use super::explain::details;
use super::{PlanNode, StreamPlan, sql_type_name};

impl StreamPlan {
    /// The plan as JSON: `nodes` (id, operator, details, inputs, columns, stream properties) in an
    /// order in which inputs stand before their readers, `sinks`, `late_sinks`, `guarantee` (level, text, tables; null where
    /// it is not known), `warnings` and `lints`.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    ///
    /// let json = Planner::default().plan("VALUES (1)", &Catalog::new())?.to_json();
    /// assert_eq!(json["nodes"][0]["operator"], "Values");
    /// assert_eq!(json["nodes"][0]["columns"][0]["type"], "BIGINT");
    /// assert_eq!(json["sinks"], serde_json::json!([1]));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn to_json(&self) -> Value {
        let nodes: Vec<Value> =
            super::on_large_stack(|| (0..self.nodes.len()).map(|id| self.node_json(id)).collect());
        json!({
            "nodes": nodes,
            "sinks": self.sinks,
            "late_sinks": self.late_sinks,
            "guarantee": self.guarantee.as_ref().map(super::Guarantee::to_json),
            "warnings": self.warnings,
            "lints": self.lints.iter().map(super::Lint::to_json).collect::<Vec<_>>(),
        })
    }

    fn node_json(&self, id: usize) -> Value {
        let node = &self.nodes[id];
        let input = node.inputs.first().map(|input| self.nodes[*input].schema.as_ref());
        let columns: Vec<Value> = node
            .schema
            .fields()
            .iter()
            .map(|field| {
                json!({
                    "name": field.name(),
                    "type": sql_type_name(field.data_type()),
                    "nullable": field.is_nullable(),
                })
            })
            .collect();
        json!({
            "id": id,
            "operator": node.operation.name(),
            "details": details(node, input),
            "late_rows_into": node.late.as_ref().map(|late| late.table.as_str()),
            "inputs": node.inputs,
            "columns": columns,
            "stream": stream(node),
        })
    }
}

fn stream(node: &PlanNode) -> Value {
    let properties = &node.properties;
    let names = |indexes: &[usize]| -> Vec<String> {
        indexes.iter().map(|index| node.schema.field(*index).name().clone()).collect()
    };
    json!({
        "bounded": properties.bounded,
        "updating": properties.updating,
        "watermark": properties.watermark,
        "time_attributes": names(&properties.time_attributes),
        "key": properties.key.as_deref().map(names),
    })
}
