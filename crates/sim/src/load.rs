//! The load generator as a host of the world.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use iotax_node::{
    Failure, LoadConfig, LoadNode, Randomness,
    load::{Endpoint, connector},
};
use iotax_proto::{HeapRegion, Region};

use crate::world::{HostId, World};

/// Puts a load on a host of its own: connected as soon as the world goes on, begun by `LoadNode::begin`.
pub fn add_load(
    world: &mut World,
    link: usize,
    endpoint: &Endpoint,
    config: LoadConfig,
    instance: u32,
) -> Result<(HostId, Rc<RefCell<LoadNode>>), Failure> {
    let server = endpoint.unit.host().and_then(|host| host.parse().ok());
    let server: IpAddr = server.ok_or_else(|| Failure::usage("a host of the world is named by address", "endpoint"))?;
    let settings = connector::Settings::new(server, instance, Randomness::new([5; 32]));
    let control = connector::control(endpoint, &settings, &config)?;
    let mut allocate = |len| Ok(HeapRegion::new(len) as Rc<dyn Region>);
    let node = Rc::new(RefCell::new(LoadNode::remote(config, endpoint, control, &mut allocate)?));
    let [high, low] = (instance as u16).to_be_bytes();
    let host = world.add_host(node.clone(), IpAddr::from([10, 1, high, low]), None, link, Vec::new());
    world.settle(host);
    Ok((host, node))
}
