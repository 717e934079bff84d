//! The load generator as a host of the world.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use iotax_node::{
    Failure, LoadConfig, LoadNode, Randomness,
    load::{Endpoint, connector::ConnectionConfig},
};
use iotax_proto::{HeapRegion, Region};

use crate::{
    link::Ways,
    world::{HostId, World},
};

/// Links of the world lose data but do not damage them.
pub(crate) const HAS_FRAME_CRC: bool = false;

/// Configuration of an initiator that connects to a server of the world. `instance` distinguishes loads.
pub fn connection_config(endpoint: &Endpoint, instance: u32) -> Result<ConnectionConfig, Failure> {
    let named = || Failure::usage("a host of the world is named by address", "endpoint");
    let portals = endpoint.unit.portals().iter().map(|portal| portal.host.parse().map_err(|_| named()));
    let portals: Vec<IpAddr> = portals.collect::<Result<_, _>>()?;
    let (first, further) = portals.split_first().ok_or_else(named)?;
    let mut connection = ConnectionConfig::new(*first, instance, Randomness::new([5; 32]));
    connection.settings.has_frame_crc = HAS_FRAME_CRC;
    Ok(ConnectionConfig { further: further.to_vec(), ..connection })
}

/// Adds a load on a host of its own. It connects by these ways as soon as the world runs, and is started by
/// `LoadNode::begin`.
pub fn add_load(
    world: &mut World,
    link: usize,
    ways: Ways,
    endpoint: &Endpoint,
    config: LoadConfig,
    connection: &ConnectionConfig,
) -> Result<(HostId, Rc<RefCell<LoadNode>>), Failure> {
    let [_, _, high, low] = connection.settings.instance.to_be_bytes();
    let mut allocate = |len| Ok(HeapRegion::new(len) as Rc<dyn Region>);
    let node = Rc::new(RefCell::new(LoadNode::remote(config, endpoint, connection, &mut allocate)?));
    let host = world.add_host(node.clone(), IpAddr::from([10, 1, high, low]), None, link, Vec::new());
    world.set_ways(host, ways);
    world.settle(host);
    Ok((host, node))
}
