//! The messages of several groups on the connections of one node.
//!
//! In a cluster with several groups every message begins with a mark, the number of groups and the group that it is for. A cluster with one
//! group has messages without them, as in earlier versions. Nodes whose numbers of groups differ refuse each other's messages, so no
//! task gets into a group to which it does not belong.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qo_store::runtime::BoxFuture;

use super::wire::{self, GROUPED};
use super::{PendingResponse, Service, Transport};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::config::Member;

/// Sends the messages of one group.
pub(crate) struct GroupTransport {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) group: u16,
    pub(crate) groups: u16,
}

impl Transport for GroupTransport {
    fn call(&self, target: &Member, request: Bytes, limit: Duration) -> PendingResponse {
        if self.groups == 1 {
            return self.transport.call(target, request, limit);
        }
        let mut out = Encoder::with_capacity(request.len() + 9);
        out.u8(GROUPED)
            .u32(u32::from(self.groups))
            .u32(u32::from(self.group))
            .raw(&request);
        self.transport.call(target, out.finish(), limit)
    }
}

/// Passes messages on to their groups.
pub(crate) struct GroupService {
    pub(crate) node: u64,
    pub(crate) services: Vec<Arc<dyn Service>>,
}

/// The number of groups and the group of a message, and the message itself.
fn open(message: &Bytes) -> Result<(usize, usize, Bytes), DecodeError> {
    if message.first() != Some(&GROUPED) {
        return Ok((1, 0, message.clone()));
    }
    let mut input = Decoder::new(message.slice(1..));
    let (groups, group) = (input.u32()?, input.u32()?);
    Ok((groups as usize, group as usize, message.slice(9..)))
}

impl Service for GroupService {
    fn handle(&self, from: u64, message: Bytes) -> BoxFuture<Bytes> {
        let refused = match open(&message) {
            Ok((groups, group, request)) if groups == self.services.len() => {
                match self.services.get(group) {
                    Some(service) => return service.handle(from, request),
                    None => format!("there is no group {group}"),
                }
            }
            Ok((groups, _, _)) => format!(
                "node {from} divides the tasks over {groups} groups, and node {} over {}; start all nodes of a cluster with the same --groups",
                self.node,
                self.services.len()
            ),
            Err(error) => error.to_string(),
        };
        tracing::warn!(from, "refused a message: {refused}");
        Box::pin(std::future::ready(wire::failed(&refused)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo(u8);

    impl Service for Echo {
        fn handle(&self, _from: u64, request: Bytes) -> BoxFuture<Bytes> {
            let response = [&[self.0], request.as_ref()].concat();
            Box::pin(std::future::ready(Bytes::from(response)))
        }
    }

    /// Passes messages to a service in this process.
    struct Direct(Arc<dyn Service>);

    impl Transport for Direct {
        fn call(&self, target: &Member, request: Bytes, _limit: Duration) -> PendingResponse {
            let response = self.0.handle(target.node, request);
            Box::pin(async move { Ok(response.await) })
        }
    }

    async fn send(service: &Arc<dyn Service>, group: u16, groups: u16) -> Bytes {
        let transport = GroupTransport {
            transport: Arc::new(Direct(Arc::clone(service))),
            group,
            groups,
        };
        let limit = Duration::from_secs(1);
        let request = Bytes::from_static(b"\x01hello");
        let target = Member::new(1, "a:1", "");
        transport.call(&target, request, limit).await.unwrap()
    }

    fn service(groups: u8) -> Arc<dyn Service> {
        Arc::new(GroupService {
            node: 2,
            services: (0..groups)
                .map(|group| Arc::new(Echo(group)) as Arc<dyn Service>)
                .collect(),
        })
    }

    #[tokio::test]
    async fn messages_reach_their_group() {
        let three = service(3);
        for group in 0..3_u8 {
            let response = send(&three, u16::from(group), 3).await;
            assert_eq!(response.as_ref(), [&[group], &b"\x01hello"[..]].concat());
        }
        let one = service(1);
        assert_eq!(send(&one, 0, 1).await.as_ref(), b"\0\x01hello");
    }

    #[tokio::test]
    async fn other_numbers_of_groups_are_refused() {
        for (service, group, groups) in [
            (service(3), 0, 1),
            (service(1), 0, 3),
            (service(3), 0, 4),
            (service(3), 3, 3),
        ] {
            let response = send(&service, group, groups).await;
            assert!(
                wire::open_response(response).is_err(),
                "{group} of {groups}"
            );
        }
        let short = service(3).handle(1, Bytes::from_static(&[GROUPED, 0, 0]));
        assert!(wire::open_response(short.await).is_err());
    }
}
