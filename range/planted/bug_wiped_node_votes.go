//go:build planted && planted_wiped_node_votes

package planted

const active = WipedNodeVotes
