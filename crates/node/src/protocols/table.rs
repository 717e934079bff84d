//! Generates, from the table's rows, the types that distinguish protocols. Each is an enum that is matched once where
//! it is used, so that no I/O goes through a table of functions.

/// A row `Name in module`: `module::Name` is the protocol's `Definition`, and `Name` that of its variants.
macro_rules! protocols {
    ($($(#[$when:meta])? $name:ident in $module:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            $($(#[$when])? $name,)+
        }

        impl Protocol {
            pub const ALL: &'static [Self] = &[$($(#[$when])? Self::$name,)+];

            pub fn about(self) -> &'static About {
                match self { $($(#[$when])? Self::$name => &$module::$name::ABOUT,)+ }
            }

            /// Creates a decoder that describes PDUs.
            pub fn describe(self, digests: Digests) -> Box<dyn Describe> {
                match self { $($(#[$when])? Self::$name => $module::$name::describe(digests),)+ }
            }
        }

        /// The part of an endpoint behind the host.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum RemoteUnit {
            $($(#[$when])? $name(<$module::$name as Definition>::Unit),)+
        }

        impl RemoteUnit {
            /// Returns `None` if no protocol has this scheme.
            pub(crate) fn parse(
                scheme: &str,
                port: Option<u16>,
                path: &str,
                query: Option<&str>,
            ) -> Option<Result<Self, String>> {
                $($(#[$when])? if scheme == $module::$name::ABOUT.scheme {
                    return Some($module::$name::parse(port, path, query).map(Self::$name));
                })+
                None
            }

            pub fn protocol(&self) -> Protocol {
                match self { $($(#[$when])? Self::$name(_) => Protocol::$name,)+ }
            }

            pub(crate) fn control(
                &self,
                settings: &Settings,
                options: &Options,
                workers: Workers,
                endpoint: &str,
            ) -> Result<Box<dyn Control<AnyInitiator>>, Failure> {
                match self {
                    $($(#[$when])? Self::$name(unit) => {
                        let control = $module::$name::control(unit, settings, &options.$module, workers, endpoint)?;
                        Ok(any_control(control, |initiator| AnyInitiator::$name(Box::new(initiator))))
                    })+
                }
            }
        }

        /// Connection options of each protocol, in addition to the common ones.
        #[allow(dead_code)] // some have none of their own
        #[derive(Clone, Debug, Default)]
        pub struct Options {
            $($(#[$when])? pub $module: <$module::$name as Definition>::Options,)+
        }

        impl Options {
            /// The name of an option that is set but belongs to another protocol than this one.
            pub(crate) fn given_to_others(&self, protocol: Protocol) -> Option<&'static str> {
                $($(#[$when])? if protocol != Protocol::$name && let Some(name) = self.$module.given().first() {
                    return Some(name);
                })+
                None
            }
        }

        /// Options of the exports of each protocol.
        #[allow(dead_code)] // some have none
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct ExportOptions {
            $($(#[$when])? pub $module: <$module::$name as Definition>::ExportOptions,)+
        }

        impl ExportOptions {
            /// The name of an option that is set but belongs to another protocol than this one.
            pub(crate) fn given_to_others(&self, protocol: Protocol) -> Option<&'static str> {
                $($(#[$when])? if protocol != Protocol::$name && let Some(name) = self.$module.given().first() {
                    return Some(name);
                })+
                None
            }
        }

        /// A worker's access to its unit.
        pub enum AnyInitiator {
            $($(#[$when])? $name(Box<<$module::$name as Definition>::Initiator>),)+
            Memory(MemoryInitiator),
            Disk(DiskInitiator),
            /// Several of them, over paths of one protocol.
            Fan(Box<Fan>),
        }

        impl AnyInitiator {
            pub fn get(&mut self) -> &mut dyn Initiator {
                match self {
                    $($(#[$when])? Self::$name(initiator) => initiator.as_mut(),)+
                    Self::Memory(initiator) => initiator,
                    Self::Disk(initiator) => initiator,
                    Self::Fan(fan) => fan.as_mut(),
                }
            }

            pub(crate) fn credits(&self) -> usize {
                match self {
                    $($(#[$when])? Self::$name(initiator) => initiator.credits(),)+
                    Self::Memory(initiator) => initiator.credits(),
                    Self::Disk(initiator) => initiator.credits(),
                    Self::Fan(fan) => fan.credits(),
                }
            }

            pub fn poll_timeout(&self) -> Option<Instant> {
                match self {
                    $($(#[$when])? Self::$name(initiator) => initiator.poll_timeout(),)+
                    Self::Memory(initiator) => initiator.poll_timeout(),
                    Self::Disk(initiator) => initiator.poll_timeout(),
                    Self::Fan(fan) => fan.poll_timeout(),
                }
            }

            pub(crate) fn after_loss(&self) -> Option<AfterLoss> {
                match self {
                    $($(#[$when])? Self::$name(initiator) => $module::$name::after_loss(initiator),)+
                    Self::Memory(_) | Self::Disk(_) | Self::Fan(_) => None,
                }
            }

            pub(crate) fn access(&self) -> Option<Access> {
                match self {
                    $($(#[$when])? Self::$name(initiator) => $module::$name::access(initiator),)+
                    Self::Memory(_) | Self::Disk(_) | Self::Fan(_) => None,
                }
            }

            pub(crate) fn check_access(&mut self, now: Instant) {
                match self {
                    $($(#[$when])? Self::$name(initiator) => $module::$name::check_access(initiator, now),)+
                    Self::Memory(_) | Self::Disk(_) | Self::Fan(_) => {}
                }
            }

            pub(crate) fn facts(&self) -> Facts {
                match self {
                    $($(#[$when])? Self::$name(initiator) => $module::$name::facts(initiator),)+
                    Self::Memory(_) | Self::Disk(_) | Self::Fan(_) => Facts::default(),
                }
            }
        }

        impl fmt::Debug for AnyInitiator {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($(#[$when])? Self::$name(_) => stringify!($name),)+
                    Self::Memory(_) => "Memory",
                    Self::Disk(_) => "Disk",
                    Self::Fan(_) => "Fan",
                })
            }
        }

        /// An export of any protocol.
        #[derive(Clone, Debug)]
        pub(crate) enum Exported {
            $($(#[$when])? $name(<$module::$name as Definition>::Exported),)+
        }

        impl Exported {
            pub(crate) fn new(protocol: Protocol, config: &ServerConfig, index: usize) -> Self {
                match protocol {
                    $($(#[$when])? Protocol::$name => {
                        Self::$name(ExportedUnit::new(config, index))
                    })+
                }
            }

            pub(crate) fn endpoint(&self, address: SocketAddr) -> String {
                match self {
                    $($(#[$when])? Self::$name(exported) => {
                        format!("{}://{address}{}", $module::$name::ABOUT.scheme, exported.path())
                    })+
                }
            }

            pub(crate) fn set_access(&self, port: u16, access: Access) -> Result<(), &'static str> {
                match self {
                    $($(#[$when])? Self::$name(exported) => exported.set_access(port, access),)+
                }
            }

            pub(crate) fn tree(&self) -> Option<&Guarded<Tree>> {
                match self {
                    $($(#[$when])? Self::$name(exported) => exported.tree(),)+
                }
            }
        }

        /// State that all exports and portals of each protocol share.
        #[allow(dead_code)] // some share nothing
        #[derive(Debug)]
        pub(crate) struct Common {
            $($(#[$when])? pub(crate) $module: <$module::$name as Definition>::Common,)+
        }

        impl Common {
            pub(crate) fn new(config: &ServerConfig) -> Self {
                Self { $($(#[$when])? $module: $module::$name::common(config),)+ }
            }
        }

        /// The server's side of one connection.
        pub(crate) enum AnyTarget {
            $($(#[$when])? $name(Box<<$module::$name as Definition>::Target>),)+
            Portmap(Box<Portmapper>),
        }

        impl AnyTarget {
            pub(crate) fn accept(protocol: Protocol, now: Instant, backend: &ServerBackend) -> Self {
                match protocol {
                    $($(#[$when])? Protocol::$name => {
                        Self::$name(Box::new($module::$name::accept(now, backend)))
                    })+
                }
            }

            pub(crate) fn worked(&mut self, now: Instant, worked: Worked, backend: &mut ServerBackend) {
                match self {
                    $($(#[$when])? Self::$name(target) => {
                        $module::$name::worked(target, now, worked, backend);
                    })+
                    Self::Portmap(_) => {}
                }
            }

            #[inline]
            pub(crate) fn carries_no_io(&self) -> bool {
                match self {
                    $($(#[$when])? Self::$name(target) => $module::$name::carries_no_io(target),)+
                    Self::Portmap(_) => false,
                }
            }
        }

        impl Target<ServerBackend> for AnyTarget {
            #[inline]
            fn receive(
                &mut self,
                now: Instant,
                bytes: &[u8],
                backend: &mut ServerBackend,
            ) -> Result<usize, Violation> {
                match self {
                    $($(#[$when])? Self::$name(target) => target.receive(now, bytes, backend),)+
                    Self::Portmap(target) => target.receive(now, bytes, backend),
                }
            }

            #[inline]
            fn place(&mut self, at_least: usize, backend: &mut ServerBackend) -> Option<Payload> {
                match self {
                    $($(#[$when])? Self::$name(target) => target.place(at_least, backend),)+
                    Self::Portmap(_) => None,
                }
            }

            fn placed(&mut self, now: Instant, len: usize, backend: &mut ServerBackend) -> Result<(), Violation> {
                match self {
                    $($(#[$when])? Self::$name(target) => target.placed(now, len, backend),)+
                    Self::Portmap(target) => target.placed(now, len, backend),
                }
            }

            #[inline]
            fn complete(
                &mut self,
                now: Instant,
                id: IoId,
                result: Result<Option<Payload>, UnitError>,
                backend: &mut ServerBackend,
            ) {
                match self {
                    $($(#[$when])? Self::$name(target) => target.complete(now, id, result, backend),)+
                    Self::Portmap(target) => target.complete(now, id, result, backend),
                }
            }

            #[inline]
            fn transmit(&mut self) -> &mut Transmit {
                match self {
                    $($(#[$when])? Self::$name(target) => Target::<ServerBackend>::transmit(target.as_mut()),)+
                    Self::Portmap(target) => Target::<ServerBackend>::transmit(target.as_mut()),
                }
            }

            #[inline]
            fn poll_timeout(&self) -> Option<Instant> {
                match self {
                    $($(#[$when])? Self::$name(target) => Target::<ServerBackend>::poll_timeout(target.as_ref()),)+
                    Self::Portmap(target) => Target::<ServerBackend>::poll_timeout(target.as_ref()),
                }
            }

            #[inline]
            fn handle_timeout(&mut self, now: Instant, backend: &mut ServerBackend) -> Result<(), Violation> {
                match self {
                    $($(#[$when])? Self::$name(target) => target.handle_timeout(now, backend),)+
                    Self::Portmap(target) => target.handle_timeout(now, backend),
                }
            }

            #[inline]
            fn is_closing(&self) -> bool {
                match self {
                    $($(#[$when])? Self::$name(target) => Target::<ServerBackend>::is_closing(target.as_ref()),)+
                    Self::Portmap(target) => Target::<ServerBackend>::is_closing(target.as_ref()),
                }
            }

            fn handle_notification(&mut self, now: Instant, backend: &mut ServerBackend) {
                match self {
                    $($(#[$when])? Self::$name(target) => target.handle_notification(now, backend),)+
                    Self::Portmap(_) => {}
                }
            }

            fn disconnected(&mut self, now: Instant, backend: &mut ServerBackend) {
                match self {
                    $($(#[$when])? Self::$name(target) => target.disconnected(now, backend),)+
                    Self::Portmap(target) => target.disconnected(now, backend),
                }
            }
        }

        impl fmt::Debug for AnyTarget {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($(#[$when])? Self::$name(_) => stringify!($name),)+
                    Self::Portmap(_) => "Portmap",
                })
            }
        }
    };
}

pub(super) use protocols;
