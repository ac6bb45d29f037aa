package coord

import (
	"context"
	"time"
)

// A holder often releases a lock under the context of the hold (Lock.Held and the like). That
// context ends when the release begins, so that the protected work ends. But the releasing call
// itself must continue. So these contexts carry the object that they belong to. A call that
// releases such an object continues under a context that does not end with the object.

// belonging is the context key of the *heldKey or the *Ownership with which a context ends.
// sessionOf is the context key of the *Session.
type (
	belonging struct{}
	sessionOf struct{}
)

// outlive returns a context for a call that is about to end the context of owner. If ctx ends with
// owner, the returned context does not: it ends at the deadline of ctx, or after most if that is
// sooner. If ctx does not end with owner, or has ended already, the returned context is ctx.
//
// The call does not notice the cancellation of a context between owner's context and ctx, because
// ctx has ended by then.
func outlive(ctx context.Context, key, owner any, most time.Duration) (context.Context,
	context.CancelFunc) {
	if ctx.Err() != nil || ctx.Value(key) != owner {
		return ctx, func() {}
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	deadline, limited := ctx.Deadline()
	if !limited {
		return longer, cancel
	}
	limitedToo, cancelToo := context.WithDeadline(longer, deadline)
	return limitedToo, func() { cancelToo(); cancel() }
}
