package limit

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// LargeAnswerBytes is the size from which the answer of a call is large.
	LargeAnswerBytes = 64 << 10
	// answersGranted is how many bytes of large answers each principal may have on their way
	// whatever its share. One answer may take half of the budget.
	answersGranted = 8 << 20
	// answersAgain is the interval at which a stream's message that waits for room asks again, and
	// answersWait how long it waits.
	answersAgain = 10 * time.Millisecond
	answersWait  = 30 * time.Second
)

// ResponseBudget bounds the bytes of large answers on their way to clients. gRPC takes an answer
// and sends it as fast as the client reads, so a call is over long before its answer is sent: the
// bytes count until they are sent, or their connection is gone. Principals share the budget
// (package quota). An answer larger than a principal can ever have is let through if no other such
// answer is on its way, and counts as what a principal can have: so other principals keep their
// share. Safe for concurrent use.
type ResponseBudget struct {
	bytes *quota.Bytes
	// largest is set while an answer larger than bytes.Most is on its way.
	largest atomic.Bool
}

// NewResponseBudget returns a bound in bytes.
func NewResponseBudget(limit int64) *ResponseBudget {
	return ResponseBudgetOf(quota.NewBytes(limit, answersGranted))
}

// ResponseBudgetOf returns a bound on the given shared bytes.
func ResponseBudgetOf(bytes *quota.Bytes) *ResponseBudget { return &ResponseBudget{bytes: bytes} }

// Limit returns how many bytes may be on their way.
func (a *ResponseBudget) Limit() int64 { return a.bytes.Limit() }

// Held returns how many bytes are on their way.
func (a *ResponseBudget) Held() int64 { return a.bytes.Held() }

// Bound returns the answer of a call, counted in the budget, or ResourceExhausted if too much is on
// its way to the principal already. A small answer, or one that stays in this process, is returned
// as it is. The result is to be passed to gRPC, with Codec; for other ways see Leaves.
func (a *ResponseBudget) Bound(ctx context.Context, answer proto.Message, size int) (any, error) {
	if !counts(ctx, size) {
		return answer, nil
	}
	of := authn.PrincipalOfCall(ctx)
	if int64(size) > a.bytes.Most() {
		if !a.largest.CompareAndSwap(false, true) {
			return nil, a.full(codes.ResourceExhausted)
		}
		most := a.bytes.Most()
		a.bytes.Force(of, most)
		b := newBounded(a.bytes, of, answer, int(most))
		b.claim.largest = &a.largest
		return b, nil
	}
	if !a.bytes.Take(of, int64(size)) {
		return nil, a.full(codes.ResourceExhausted)
	}
	return newBounded(a.bytes, of, answer, size), nil
}

// Room returns ResourceExhausted if no more may be on its way to the principal of a call, before
// the size of the answer is known. It takes nothing.
func (a *ResponseBudget) Room(ctx context.Context) error {
	if counts(ctx, LargeAnswerBytes) && !a.bytes.Take(authn.PrincipalOfCall(ctx), 0) {
		return a.full(codes.ResourceExhausted)
	}
	return nil
}

// Count is Bound for the answer of a call that has had an effect: the answer counts, and is not
// refused.
func (a *ResponseBudget) Count(ctx context.Context, answer proto.Message, size int) any {
	if !counts(ctx, size) {
		return answer
	}
	of := authn.PrincipalOfCall(ctx)
	a.bytes.Force(of, int64(size))
	return newBounded(a.bytes, of, answer, size)
}

// Wait is Bound for a message of a stream: it waits until there is room. If there is none for long,
// the error is Unavailable, after which clients resume the stream.
func (a *ResponseBudget) Wait(ctx context.Context, message proto.Message, size int) (any, error) {
	for began := time.Now(); ; {
		bounded, err := a.Bound(ctx, message, size)
		switch {
		case err == nil:
			return bounded, nil
		case time.Since(began) > answersWait:
			return nil, a.full(codes.Unavailable)
		}
		if err := backoff.Sleep(ctx, answersAgain); err != nil {
			return nil, err
		}
	}
}

// leaves is the key of contexts made by Leaves.
type leaves struct{}

// Leaves returns the context of a call that is served in this process, and whose answer leaves it
// other than by gRPC, so that a large answer counts. The result of Bound, Count or Wait must then
// be told its fate by Becomes and Sent. The context must have the client's peer.Peer.
func Leaves(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaves{}, true)
}

// counts reports whether an answer counts: it is large, and leaves this process.
func counts(ctx context.Context, size int) bool {
	return size >= LargeAnswerBytes &&
		(grpc.ServerTransportStreamFromContext(ctx) != nil || ctx.Value(leaves{}) != nil)
}

func (a *ResponseBudget) full(code codes.Code) error {
	return status.Errorf(code, "etcdserver: too many requests: answers of %d bytes are on their way "+
		"to clients that have not read them; ask again later, or for less at a time", a.bytes.Held())
}

// bounded is a message together with the bytes that it has taken.
type bounded struct {
	proto.Message
	claim *Claim
}

// Becomes notes that the message was encoded other than by gRPC: the size of that encoding counts
// from now on, whether there is room or not, and the message is released.
func (b *bounded) Becomes(size int) {
	b.claim.resize(int64(size))
	b.Message = nil
}

// Unbound takes a bounded answer apart, for callers that encode it other than gRPC does. It returns
// the message, and the claim to be given back when the encoding was sent; nil: the answer is not
// bounded.
func Unbound(answer any) (message any, held *Claim) {
	b, ok := answer.(*bounded)
	if !ok {
		return answer, nil
	}
	b.claim.encoded.Store(true)
	return b.Message, b.claim
}

// Sent returns the bytes.
func (b *bounded) Sent() { b.claim.Give() }

// Claim returns its bytes once: when they were sent, and at the latest when nothing refers to the
// message and its encoding any more, because gRPC does not report answers that it drops with a
// connection.
type Claim struct {
	bytes *quota.Bytes
	of    string
	size  atomic.Int64
	given atomic.Bool
	// largest is not nil for an answer that counts as less than its size. It is set to false when
	// the bytes are returned.
	largest *atomic.Bool
	// encoded is set when the encoding has taken the claim over.
	encoded atomic.Bool
}

// Give returns the bytes; c may be nil.
func (c *Claim) Give() {
	if c != nil && !c.given.Swap(true) {
		c.bytes.Give(c.of, c.size.Load())
		if c.largest != nil {
			c.largest.Store(false)
		}
	}
}

// resize changes the size. Only the owner of the message may call it, before the bytes are
// returned.
func (c *Claim) resize(size int64) {
	if c.largest != nil {
		size = min(size, c.size.Load())
	}
	if more := size - c.size.Swap(size); more > 0 {
		c.bytes.Force(c.of, more)
	} else {
		c.bytes.Give(c.of, -more)
	}
}

func (c *Claim) giveUnlessEncoded() {
	if !c.encoded.Load() {
		c.Give()
	}
}

func newBounded(bytes *quota.Bytes, of string, m proto.Message, size int) *bounded {
	b := &bounded{m, &Claim{bytes: bytes, of: of}}
	b.claim.size.Store(int64(size))
	runtime.AddCleanup(b, (*Claim).giveUnlessEncoded, b.claim)
	return b
}

// Encode implements wire.Encoder. The claim ends with the encoding.
func (b *bounded) Encode() (mem.BufferSlice, error) {
	encoded, err := proto.Marshal(b.Message)
	if err != nil {
		b.claim.Give()
		return nil, fmt.Errorf("marshal %T: %w", b.Message, err)
	}
	b.claim.encoded.Store(true)
	back := &claimBack{b.claim}
	runtime.AddCleanup(back, (*Claim).Give, b.claim)
	runtime.KeepAlive(b)
	return mem.BufferSlice{mem.NewBuffer(&encoded, back)}, nil
}

// claimBack is the pool of one buffer: gRPC puts the buffer back when it has sent it.
type claimBack struct{ claim *Claim }

// Get implements mem.BufferPool. It is not used.
func (*claimBack) Get(length int) *[]byte { return wire.Buffers.Get(length) }

// Put implements mem.BufferPool.
func (c *claimBack) Put(*[]byte) { c.claim.Give() }
