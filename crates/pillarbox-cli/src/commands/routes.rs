//! `pillarbox routes`: which way a message would take, without sending one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pillarbox::template::Escape;
use pillarbox::{Message, Template};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{escaped, json_line, say};
use crate::relay::{Config, table};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Say which route a message of this topic takes, and why no other
    Explain(Explain),
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The topic of the message.
    topic: String,
    /// The file that names the routes.
    #[arg(long, value_name = "FILE", env = "PILLARBOX_CONFIG")]
    config: PathBuf,
    /// The type of the message.
    #[arg(long = "type", value_name = "NAME")]
    message_type: Option<String>,
    /// Its tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Its key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A header of it; can be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Command) -> Result<Exit, Failure> {
    let Command::Explain(options) = command;
    let config = Config::read(&options.config).map_err(Failure::wrong_use)?;
    let (table, selectors) = table(&config).map_err(Failure::wrong_use)?;
    let message = options.message();
    let winner = table.find(&message);
    let destination = |index: usize| {
        let section = &config.routes[index];
        let template: Result<Template, _> = section.destination.parse();
        template
            .map_err(|invalid| invalid.to_string())
            .and_then(|template| template.fill(&message, Escape::Nothing).map_err(|missing| missing.to_string()))
    };
    let reasons: Vec<_> = selectors
        .iter()
        .enumerate()
        .map(|(index, selector)| match selector.mismatch(&message) {
            _ if winner == Some(index) => "wins: the most specific that matches".to_owned(),
            Some(reason) => reason,
            None => "matches, but is less specific".to_owned(),
        })
        .collect();
    if options.json {
        let routes = selectors.iter().zip(&reasons).zip(&config.routes).map(
            |((selector, reason), section)| json!({ "route": selector.name(), "to": section.to, "reason": reason }),
        );
        let destination = winner.map(|index| destination(index).unwrap_or_else(|reason| reason));
        let routes: Vec<_> = routes.collect();
        say(&json_line(&json!({ "route": winner, "destination": destination, "routes": routes })))?;
    } else {
        let mut text = String::new();
        for ((selector, reason), section) in selectors.iter().zip(&reasons).zip(&config.routes) {
            let mark = if reason.starts_with("wins") { "✓" } else { "–" };
            text += &format!("{mark} {} → {}: {}\n", escaped(&selector.name()), escaped(&section.to), escaped(reason));
        }
        text += &match winner {
            Some(index) => match destination(index) {
                Ok(place) => format!("goes to {}: {}\n", escaped(&config.routes[index].to), escaped(&place)),
                Err(reason) => format!("would be dead: {}\n", escaped(&reason)),
            },
            None => "goes nowhere: it stays in the outbox and is looked at again, until a route matches\n".to_owned(),
        };
        say(&text)?;
    }
    Ok(if winner.is_some() { Exit::Fine } else { Exit::Warning })
}

impl Explain {
    fn message(&self) -> Message {
        let mut message = Message::new(&self.topic, "").headers(self.headers.clone());
        if let Some(message_type) = &self.message_type {
            message = message.message_type(message_type.as_str());
        }
        if let Some(tenant) = &self.tenant {
            message = message.tenant(tenant);
        }
        if let Some(key) = &self.key {
            message = message.key(key);
        }
        message
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    parts.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected name=value".to_owned())
}
