//! `exec.network`: what commands reach of the network.

use serde_json::json;

use super::{Hosts, Spots};
use crate::decode::{Decoder, Field};
use crate::keys::Slot;
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape};
use crate::yaml::Value;
use harness_policy::command::CommandNetwork;
use harness_policy::text::quoted;

/// What is written for the network of commands.
pub(super) enum NetworkValue {
    /// All of it, or nothing.
    All(bool),
    /// These hosts.
    Hosts(Hosts),
}

impl Shape for NetworkValue {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [bool::schema(), Hosts::schema()]}))
    }
}

impl Read for NetworkValue {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        match &field.node.value {
            Value::Seq(_) => Hosts::read(decoder, field).map(Self::Hosts),
            _ => decoder.boolean(field).map(Self::All),
        }
    }
}

impl Spots {
    pub(super) fn network_of_commands(
        &mut self,
        decoder: &mut Decoder,
        slot: &Slot<'_, NetworkValue>,
    ) -> CommandNetwork {
        const KEY: &str = "exec.network";
        let Some(value) = slot.located(decoder) else { return CommandNetwork::None };
        let rules = match value.value {
            NetworkValue::All(all) => {
                self.note(KEY, &value.position, Vec::new());
                return if all { CommandNetwork::All } else { CommandNetwork::None };
            }
            NetworkValue::Hosts(list) => self.rules(KEY, Located::new(list, value.position)),
        };
        CommandNetwork::hosts(rules).unwrap_or_else(|why| {
            if let Some(field) = slot.field() {
                decoder.error(field, format!("{}: {why}", quoted(&field.path)));
            }
            CommandNetwork::None
        })
    }
}
