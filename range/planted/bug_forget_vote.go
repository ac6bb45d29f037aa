//go:build planted && planted_forget_vote

package planted

const active = ForgetVote
