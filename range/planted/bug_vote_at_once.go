//go:build planted && planted_vote_at_once

package planted

const active = VoteAtOnce
