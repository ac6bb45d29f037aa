// Package coordpb is the protocol of the coordination store's additions to the etcd API.
package coordpb
