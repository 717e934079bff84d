//! `iotax-engine load`: runs one task against one endpoint.

pub(crate) mod begin;
mod coordinator;
mod idle;
mod local;
mod observe;
pub(crate) mod report;
mod samples;
mod session;
mod slice;
pub(crate) mod threads;
mod window;

use crate::{
    document::{LoadDocument, Task},
    input, lease,
};
use iotax_node::failure::Failure;

pub(crate) use session::{Commands, run as run_session};

pub(crate) fn run() -> Result<(), Failure> {
    let document: LoadDocument = input::read_document()?;
    input::follow(|line| {
        if line.is_none() {
            lease::input_ended();
        }
    });
    match document.task {
        Task::Idle => idle::run(&document),
        Task::Run | Task::Check | Task::Fill => coordinator::run(&document),
    }
}
