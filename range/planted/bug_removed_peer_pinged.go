//go:build planted && planted_removed_peer_pinged

package planted

const active = RemovedPeerPinged
