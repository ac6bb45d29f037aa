package meta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Calls that take effect once.
//
// A caller that gets no answer makes its call again, with the same id. The member that leads then
// must not make a second change. So a change and its answer are one commit (Commit), and a call
// whose id has an answer gets that answer.

// maxAnswer limits an answer that is remembered, in bytes.
const maxAnswer = 64 << 10

// once is a call that takes effect once.
type once struct {
	id      uint64
	request []byte
	// revision is the revision of the record at CallKey before the call.
	revision uint64
	// answer is set before the commit of the change.
	answer proto.Message
}

type onceKey struct{}

// Once returns the context of a call with an id. If a call with this id and request has been
// answered before, Once returns true and sets answer. Id 0 stands for a call without an id. Only
// the newest calls are remembered, MaxCalls of them at most.
func (r *Records) Once(ctx context.Context, id uint64, request, answer proto.Message) (
	_ context.Context, answered bool, err error) {
	if id == 0 {
		return ctx, false, nil
	}
	v, err := r.View(ctx)
	if err != nil {
		return ctx, false, err
	}
	sum := sha256.Sum256(append([]byte(request.ProtoReflect().Descriptor().FullName()),
		Encode(request)...))
	before := &serverpb.Call{}
	revision, err := Load(v, CallKey(id), before)
	if err != nil {
		return ctx, false, r.Status(err)
	}
	if before.Id == id && bytes.Equal(before.Request, sum[:]) {
		if err := proto.Unmarshal(before.Answer, answer); err != nil {
			return ctx, false, r.Status(fmt.Errorf("the answer of call %016x: %w", id, err))
		}
		return ctx, true, nil
	}
	return context.WithValue(ctx, onceKey{}, &once{id, sum[:], revision, nil}), false, nil
}

// Answer sets the answer of a call, for the next Commit with its context. nil takes it back.
func Answer(ctx context.Context, answer proto.Message) {
	if o, ok := ctx.Value(onceKey{}).(*once); ok {
		o.answer = answer
	}
}

// answerOf returns the answer that the next Commit with a context stores; nil if no answer is set.
func answerOf(ctx context.Context) proto.Message {
	if o, ok := ctx.Value(onceKey{}).(*once); ok {
		return o.answer
	}
	return nil
}

// Refuse is called before a call is refused, with the context, the request and the answer of Once.
// The call may have been made before, by an attempt whose commit was not yet applied when Once
// looked: the refusal may be a consequence of the call itself. Then Refuse returns true and sets
// the answer. An error, a status, means that it is not known whether that is so.
func (r *Records) Refuse(ctx context.Context, request, answer proto.Message) (bool, error) {
	o, ok := ctx.Value(onceKey{}).(*once)
	if !ok {
		return false, nil
	}
	Answer(ctx, nil)
	// This commit is applied after all that were proposed before.
	unchanged, err := r.Commit(ctx, []*storepb.Compare{store.ModifiedAt(CallKey(o.id), o.revision)})
	if err != nil || unchanged {
		return false, err
	}
	if _, answered, err := r.Once(ctx, o.id, request, answer); answered || err != nil {
		return answered, err
	}
	return false, Conflict(fmt.Sprintf("call %016x", o.id))
}

// remember returns the conditions and operations of a commit, with those that remember the answer
// of the call of ctx.
func remember(ctx context.Context, conditions []*storepb.Compare, ops []*storepb.Op,
) ([]*storepb.Compare, []*storepb.Op) {
	o, ok := ctx.Value(onceKey{}).(*once)
	if !ok || o.answer == nil || proto.Size(o.answer) > maxAnswer {
		return conditions, ops
	}
	key := CallKey(o.id)
	call := &serverpb.Call{Id: o.id, Request: o.request, Answer: Encode(o.answer)}
	return append(conditions[:len(conditions):len(conditions)], store.ModifiedAt(key, o.revision)),
		append(ops[:len(ops):len(ops)], store.Put(key, Encode(call)))
}
