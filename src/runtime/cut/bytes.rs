//! What a cut is written as: for each task a header in JSON, the states of its operators and the rows that were on
//! their way, both as streams of Arrow IPC behind their lengths.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, Int8Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Int8Type, Int64Type, Schema};
use serde_json::{Map, Value, json};

use super::{InputCut, JobCut, LinkCut, MergeCut, Shape, SinkCut, TaskCut};
use crate::connector::Position;
use crate::error::{Error, code};
use crate::operator::{OperatorState, RowCounts, read_table, write_table};
use crate::runtime::source::{SplitCounts, SplitMark, TimerMark};
use crate::stream::{
    RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, StreamStatus, Watermark,
};

/// The kinds of rows, by their number.
const KINDS: [RowKind; 4] = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];
/// Keys of the metadata of rows that were on their way: whether columns with kinds and watermarks stand before theirs.
const HAS_KINDS: &str = "tidegate.kinds";
const HAS_RUNNING: &str = "tidegate.running";

/// The cut as bytes.
///
/// # Errors
/// An internal error for columns that can't be written.
pub(in crate::runtime) fn write(cut: &JobCut) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    put_json(
        &json!({
            "elapsed_us": cut.elapsed_us,
            "parallelism": cut.shape.parallelism,
            "spread": cut.shape.is_spread,
            "tasks": cut.tasks.len(),
        }),
        &mut bytes,
    )?;
    for task in &cut.tasks {
        put_json(&header(task), &mut bytes)?;
        for link in &task.links {
            link.state.write(&mut bytes)?;
        }
        let sink = task.sink.iter().flat_map(|sink| &sink.pending);
        for element in task.merge.inputs.iter().flat_map(|input| &input.pending).chain(sink) {
            if let StreamElement::Batch(batch) = element {
                put_batch(batch, &mut bytes)?;
            }
        }
    }
    Ok(bytes)
}

/// The cut that was written.
///
/// # Errors
/// `K002` for anything else.
pub(in crate::runtime) fn read(bytes: &[u8]) -> Result<JobCut, Error> {
    let mut rest = bytes;
    let about = Header(take_json(&mut rest)?);
    let mut cut = JobCut {
        elapsed_us: about.number("elapsed_us")?,
        shape: Shape { parallelism: about.count("parallelism")?, is_spread: about.flag("spread")? },
        tasks: Vec::new(),
    };
    for _ in 0..about.count("tasks")? {
        cut.tasks.push(read_task(&mut rest)?);
    }
    match rest.is_empty() {
        true => Ok(cut),
        false => Err(torn("something follows its end")),
    }
}

fn header(task: &TaskCut) -> Value {
    let inputs = task.merge.inputs.iter().map(|input| {
        json!({
            "bound": input.bound,
            "finished": input.is_finished,
            "idle": input.is_idle,
            "left_over": input.is_left_over,
            "pending": signs(&input.pending),
        })
    });
    let links = task.links.iter().map(|link| {
        let RowCounts { used, late, null_time, future, filtered, held, partly_late } = link.counts;
        json!({
            "node": link.node,
            "name": link.name,
            "rows_in": link.rows_in,
            "rows_out": link.rows_out,
            "said": link.said,
            "counts": [used, late, null_time, future, filtered, held, partly_late],
        })
    });
    let sink = task.sink.as_ref().map(|sink| {
        json!({
            "node": sink.node,
            "rows": sink.rows,
            "prepared": sink.prepared,
            "pending": signs(&sink.pending),
        })
    });
    let splits = task.splits.iter().map(|mark| {
        let SplitCounts { rows, malformed, null_time, future } = mark.counts;
        json!({
            "split": mark.split,
            "position": mark.position.as_ref().map(|position| &position.0),
            "used_to": mark.used_to,
            "last_line": mark.last_line,
            "reached": mark.reached,
            "said": mark.said,
            "has_spoken": mark.has_spoken,
            "counts": [rows, malformed, null_time, future],
            "timer": mark.timer.map(|timer| {
                json!([timer.empty_since_us, timer.seen_empty_us, timer.is_paused, timer.is_idle])
            }),
            "next_tick_us": mark.next_tick_us,
            "idle": mark.is_idle,
            "size": mark.size,
            "arrival_us": mark.arrival_us,
        })
    });
    json!({
        "name": task.name,
        "stage": task.stage,
        "over": task.is_over,
        "closed": task.is_closed,
        "watermark": task.watermark,
        "given": task.merge.given,
        "idle": task.merge.is_idle,
        "ended": task.merge.is_ended,
        "second_from": task.merge.second_from,
        "inputs": inputs.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "sink": sink,
        "source": task.source,
        "splits": splits.collect::<Vec<_>>(),
    })
}

fn read_task(rest: &mut &[u8]) -> Result<TaskCut, Error> {
    let about = Header(take_json(rest)?);
    let mut links = Vec::new();
    for link in about.list("links")? {
        let [used, late, null_time, future, filtered, held, partly_late] = link.numbers("counts")?;
        links.push(LinkCut {
            node: link.count("node")?,
            name: link.text("name")?,
            rows_in: link.natural("rows_in")?,
            rows_out: link.natural("rows_out")?,
            counts: RowCounts { used, late, null_time, future, filtered, held, partly_late },
            said: link.get("said")?.as_i64(),
            state: OperatorState::read(rest)?,
        });
    }
    let mut inputs = Vec::new();
    for input in about.list("inputs")? {
        inputs.push(InputCut {
            bound: input.number("bound")?,
            is_finished: input.flag("finished")?,
            is_idle: input.flag("idle")?,
            is_left_over: input.flag("left_over")?,
            pending: take_elements(&input, rest)?,
        });
    }
    let sink = match about.get("sink")? {
        Value::Null => None,
        sink => {
            let sink = Header(sink.clone());
            Some(SinkCut {
                node: sink.count("node")?,
                rows: sink.natural("rows")?,
                prepared: Some(sink.get("prepared")?.clone()).filter(|prepared| !prepared.is_null()),
                pending: take_elements(&sink, rest)?,
            })
        }
    };
    let split = |split: Header| {
        let [rows, malformed, null_time, future] = split.numbers("counts")?;
        let position = split.get("position")?;
        Ok(SplitMark {
            split: split.text("split")?,
            position: (!position.is_null()).then(|| Position(position.clone())),
            used_to: split.get("used_to")?.as_u64(),
            last_line: split.natural("last_line")?,
            reached: split.number("reached")?,
            said: split.number("said")?,
            has_spoken: split.flag("has_spoken")?,
            counts: SplitCounts { rows, malformed, null_time, future },
            timer: timer_of(split.get("timer")?),
            next_tick_us: split.get("next_tick_us")?.as_i64(),
            is_idle: split.flag("idle")?,
            size: split.get("size")?.as_u64(),
            arrival_us: split.get("arrival_us")?.as_i64(),
        })
    };
    Ok(TaskCut {
        name: about.text("name")?,
        stage: about.count("stage")?,
        is_over: about.flag("over")?,
        is_closed: about.flag("closed")?,
        watermark: about.get("watermark")?.as_i64(),
        merge: MergeCut {
            given: about.number("given")?,
            is_idle: about.flag("idle")?,
            is_ended: about.flag("ended")?,
            inputs,
            second_from: about.get("second_from")?.as_u64().map(|from| from as usize),
        },
        links,
        sink,
        source: about.get("source")?.as_u64().map(|node| node as usize),
        splits: about.list("splits")?.into_iter().map(split).collect::<Result<_, Error>>()?,
    })
}

fn timer_of(timer: &Value) -> Option<TimerMark> {
    let [empty_since, seen_empty, is_paused, is_idle] = timer.as_array()?.as_slice() else { return None };
    Some(TimerMark {
        empty_since_us: empty_since.as_i64(),
        seen_empty_us: seen_empty.as_i64()?,
        is_paused: is_paused.as_bool()?,
        is_idle: is_idle.as_bool()?,
    })
}

/// Elements without their rows.
fn signs(elements: &[StreamElement]) -> Vec<Value> {
    let sign = |element: &StreamElement| match element {
        StreamElement::Batch(_) => Some(json!("rows")),
        StreamElement::Watermark(watermark) => Some(json!(watermark.0)),
        StreamElement::Status(StreamStatus::Active) => Some(json!("active")),
        StreamElement::Status(StreamStatus::Idle) => Some(json!("idle")),
        StreamElement::Latency(_) => None,
        StreamElement::End => Some(json!("end")),
    };
    elements.iter().filter_map(sign).collect()
}

fn take_elements(of: &Header, rest: &mut &[u8]) -> Result<Vec<StreamElement>, Error> {
    let signs = of.get("pending")?.as_array().ok_or_else(|| torn("no elements"))?;
    let mut elements = Vec::with_capacity(signs.len());
    for sign in signs {
        elements.push(match (sign.as_str(), sign.as_i64()) {
            (Some("rows"), _) => StreamElement::Batch(take_batch(rest)?),
            (Some("active"), _) => StreamElement::Status(StreamStatus::Active),
            (Some("idle"), _) => StreamElement::Status(StreamStatus::Idle),
            (Some("end"), _) => StreamElement::End,
            (None, Some(watermark)) => StreamElement::Watermark(Watermark(watermark)),
            _ => return Err(torn("an unknown element")),
        });
    }
    Ok(elements)
}

fn put_batch(batch: &StreamBatch, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    if let Some(kinds) = &batch.kinds {
        let number = |kind: &RowKind| KINDS.iter().position(|known| known == kind).unwrap_or(0) as i8;
        let numbers = Int8Array::from_iter_values(kinds.values().iter().map(number));
        fields.push(Arc::new(Field::new(HAS_KINDS, arrow::datatypes::DataType::Int8, false)));
        columns.push(Arc::new(numbers) as ArrayRef);
    }
    if let Some(running) = &batch.running {
        fields.push(Arc::new(Field::new(HAS_RUNNING, arrow::datatypes::DataType::Int64, false)));
        columns.push(Arc::new(Int64Array::new(running.values().clone(), None)));
    }
    fields.extend(batch.rows.schema().fields().iter().cloned());
    columns.extend_from_slice(batch.rows.columns());
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let rows = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
        .map_err(|error| Error::internal("checkpoint", error))?;
    let about =
        [(HAS_KINDS, batch.kinds.is_some().to_string()), (HAS_RUNNING, batch.running.is_some().to_string())];
    write_table(&schema, &about, &[rows], bytes)
}

fn take_batch(rest: &mut &[u8]) -> Result<StreamBatch, Error> {
    let (schema, rows) = read_table(rest)?;
    let [rows] = rows.as_slice() else { return Err(torn("rows that are no batch")) };
    let has = |key: &str| schema.metadata().get(key).is_some_and(|has| has == "true");
    let mut columns = rows.columns();
    let mut taken = 0;
    let mut take = || {
        let (first, others) = columns.split_first().ok_or_else(|| torn("rows without their columns"))?;
        columns = others;
        taken += 1;
        Ok::<ArrayRef, Error>(Arc::clone(first))
    };
    let kinds = match has(HAS_KINDS) {
        false => None,
        true => {
            let column = take()?;
            let numbers = column.as_primitive_opt::<Int8Type>().ok_or_else(|| torn("kinds that are none"))?;
            let kind =
                |number: &i8| KINDS.get(*number as usize).copied().ok_or_else(|| torn("an unknown kind"));
            Some(RowKinds::new(numbers.values().iter().map(kind).collect::<Result<Vec<_>, _>>()?))
        }
    };
    let running = match has(HAS_RUNNING) {
        false => None,
        true => {
            let column = take()?;
            let times =
                column.as_primitive_opt::<Int64Type>().ok_or_else(|| torn("watermarks that are none"))?;
            Some(RunningWatermark::new(times.values().clone()))
        }
    };
    let columns = columns.to_vec();
    let schema = Arc::new(Schema::new(schema.fields().iter().skip(taken).cloned().collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let rows = RecordBatch::try_new_with_options(schema, columns, &options).map_err(torn)?;
    Ok(StreamBatch { rows, kinds, running, arrived: Instant::now() })
}

fn put_json(value: &Value, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let text = serde_json::to_vec(value).map_err(|error| Error::internal("checkpoint", error))?;
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&text);
    Ok(())
}

fn take_json(rest: &mut &[u8]) -> Result<Value, Error> {
    let (length, after) = rest.split_first_chunk::<8>().ok_or_else(|| torn("it ends early"))?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(torn)?;
    let (text, after) = after.split_at_checked(length).ok_or_else(|| torn("it ends early"))?;
    *rest = after;
    serde_json::from_slice(text).map_err(torn)
}

fn torn(what: impl std::fmt::Display) -> Error {
    Error::run(code::BAD_CHECKPOINT, format!("the checkpoint can't be read: {what}"))
        .hint("Use an earlier one with --from.")
}

/// A JSON object of which all that is asked for has to be there.
struct Header(Value);

impl Header {
    fn get(&self, key: &str) -> Result<&Value, Error> {
        let object: Option<&Map<String, Value>> = self.0.as_object();
        object.and_then(|object| object.get(key)).ok_or_else(|| torn(format_args!("no \"{key}\"")))
    }

    fn number(&self, key: &str) -> Result<i64, Error> {
        self.get(key)?.as_i64().ok_or_else(|| torn(format_args!("\"{key}\" is no number")))
    }

    fn natural(&self, key: &str) -> Result<u64, Error> {
        self.get(key)?.as_u64().ok_or_else(|| torn(format_args!("\"{key}\" is no number")))
    }

    fn count(&self, key: &str) -> Result<usize, Error> {
        usize::try_from(self.natural(key)?).map_err(torn)
    }

    fn flag(&self, key: &str) -> Result<bool, Error> {
        self.get(key)?.as_bool().ok_or_else(|| torn(format_args!("\"{key}\" is no flag")))
    }

    fn text(&self, key: &str) -> Result<String, Error> {
        let text = self.get(key)?.as_str().ok_or_else(|| torn(format_args!("\"{key}\" is no text")))?;
        Ok(text.to_owned())
    }

    fn list(&self, key: &str) -> Result<Vec<Self>, Error> {
        let list = self.get(key)?.as_array().ok_or_else(|| torn(format_args!("\"{key}\" is no list")))?;
        Ok(list.iter().cloned().map(Self).collect())
    }

    fn numbers<const COUNT: usize>(&self, key: &str) -> Result<[u64; COUNT], Error> {
        let list = self.get(key)?.as_array().ok_or_else(|| torn(format_args!("\"{key}\" is no list")))?;
        let numbers: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        numbers
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(|| torn(format_args!("\"{key}\" has other numbers")))
    }
}
