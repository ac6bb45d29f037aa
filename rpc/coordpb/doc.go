// Package coordpb is the protocol of what the coordination store has beside the etcd API.
package coordpb
