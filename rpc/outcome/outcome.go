package outcome

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Attempts records the attempts of one call. It is not safe for concurrent use.
type Attempts struct {
	level descriptorpb.MethodOptions_IdempotencyLevel
	at    peer.Peer
	// doubtful is set if an attempt may have been executed.
	doubtful bool
}

// Of returns the Attempts of a call of the service Cluster with a request.
func Of(request proto.Message) *Attempts {
	if onlyAsks(request) {
		return &Attempts{level: descriptorpb.MethodOptions_NO_SIDE_EFFECTS}
	}
	return &Attempts{level: levels[request.ProtoReflect().Descriptor().FullName()]}
}

// onlyAsks reports whether a request is a question, of a method whose other requests are changes.
func onlyAsks(request proto.Message) bool {
	switch r := request.(type) {
	case *clusterpb.SetNodeStatusRequest:
		return r.DryRun
	case *clusterpb.SetPlacementRequest:
		return proto.Size(r.GetChange()) == 0
	case *clusterpb.UpgradeRequest:
		return proto.Size(r) == 0
	}
	return false
}

// levels are the idempotency levels of the methods, by the names of their requests.
var levels = func() map[protoreflect.FullName]descriptorpb.MethodOptions_IdempotencyLevel {
	all := make(map[protoreflect.FullName]descriptorpb.MethodOptions_IdempotencyLevel)
	methods := clusterpb.File_clusterpb_cluster_proto.Services().ByName("Cluster").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if options, ok := m.Options().(*descriptorpb.MethodOptions); ok {
			all[m.Input().FullName()] = options.GetIdempotencyLevel()
		}
	}
	return all
}()

// callField is the metadata field with the id of a call, in hexadecimal.
const callField = "tidemark-call"

// WithID returns the context of a call with an id, which the caller has chosen at random. An
// idempotent call that is made again with the same id and request has the answer of the first. A
// call that a server forwards keeps its id.
func WithID(ctx context.Context, id uint64) context.Context {
	if from := ID(ctx); from != 0 {
		id = from
	}
	return metadata.AppendToOutgoingContext(ctx, callField, strconv.FormatUint(id, 16))
}

// ID returns the id of a call that a server has received; 0 if it has none.
func ID(ctx context.Context) uint64 {
	for _, text := range metadata.ValueFromIncomingContext(ctx, callField) {
		if id, err := strconv.ParseUint(text, 16, 64); err == nil {
			return id
		}
	}
	return 0
}

// Option returns the option that the next attempt needs.
func (a *Attempts) Option() grpc.CallOption {
	a.at = peer.Peer{}
	return grpc.Peer(&a.at)
}

// Note records the end of an attempt that was made with Option.
func (a *Attempts) Note(err error) {
	if err == nil || a.level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		return
	}
	if IsUnknown(err) {
		a.doubtful = true
		return
	}
	if _, answered := wire.ErrorDetail[*clusterpb.CoreHint](err); answered {
		return // a member says that it has done nothing
	}
	if _, answered := wire.ErrorDetail[*clusterpb.CoreTrouble](err); answered {
		return // a server says that it has found no leader
	}
	if a.at.Addr != nil && !ofAnswer(status.Code(err)) {
		a.doubtful = true
	}
}

// Once reports whether the call takes effect once, however often it is made.
func (a *Attempts) Once() bool { return a.level == descriptorpb.MethodOptions_IDEMPOTENT }

// ofAnswer reports whether only an answer has such a code, and no failure of the network.
func ofAnswer(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown,
		codes.Internal:
		return false
	}
	return true
}

// Definite reports that an error is the answer of the core to a call, which says that the call has
// changed nothing. It is not if a server has refused the call before it looked for an earlier
// attempt.
func Definite(err error) bool {
	switch code := status.Code(err); code {
	case codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return false
	default:
		return ofAnswer(code) && !IsUnknown(err)
	}
}

// Error returns the error of the call: err, which its last attempt or the search for a server has
// returned, or an error that says that the outcome is unknown, and wraps err. If a repetition has
// the outcome of the first attempt, an answer leaves no doubt.
func (a *Attempts) Error(err error) error {
	if err == nil || !a.doubtful || IsUnknown(err) ||
		a.level == descriptorpb.MethodOptions_IDEMPOTENT && Definite(err) {
		return err
	}
	return Doubt(err)
}

// Doubt returns an error that wraps err and says that the outcome is unknown.
func Doubt(err error) error { return unknown{err} }

// Unknown returns an error, a status, that says that a command may have been executed, or may still
// be. It has the details, too.
func Unknown(code codes.Code, text string, details ...proto.Message) error {
	return unknownStatus(status.New(code, text), details...).Err()
}

func unknownStatus(st *status.Status, details ...proto.Message) *status.Status {
	for _, d := range append(details, &clusterpb.OutcomeUnknown{}) {
		if detailed, err := st.WithDetails(protoadapt.MessageV1Of(d)); err == nil {
			st = detailed
		}
	}
	return st
}

// IsUnknown reports that the call that ended with an error may have been executed, or may still be.
func IsUnknown(err error) bool {
	_, is := wire.ErrorDetail[*clusterpb.OutcomeUnknown](err)
	return is
}

// unknown is an error after an attempt that may have been executed.
type unknown struct{ error }

// Error implements error.
func (u unknown) Error() string { return u.error.Error() + "; " + Advice }

// Advice ends the message of an error that Doubt returns.
const Advice = "the call may have been executed, or may be yet: look before you repeat it"

// Unwrap returns the error of the last attempt.
func (u unknown) Unwrap() error { return u.error }

// GRPCStatus returns the status of the last attempt, with the detail OutcomeUnknown.
func (u unknown) GRPCStatus() *status.Status {
	st := status.Convert(u.error)
	p := st.Proto()
	p.Message += "; " + Advice
	return unknownStatus(status.FromProto(p))
}
