package coordination

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// authorityConfirm limits how long an ask waits until this member has confirmed that it is up to
	// date.
	authorityConfirm = 5 * time.Second
	// authorityPiece is the approximate size of the records in one message, in bytes.
	authorityPiece = 1 << 20
)

// Users is the service that sends users and roles to servers, from this server's part of the
// coordination store.
type Users struct {
	clusterpb.UnimplementedAuthorityServer
	parts Parts
}

// NewUsers makes the service of a server.
func NewUsers(parts Parts) *Users { return &Users{parts: parts} }

// authorities are the methods of the store that the service needs. *store.Store has them.
type authorities interface {
	Authority() *authority.State
	AuthorityChanged() <-chan struct{}
	AppliedIndex() uint64
	Read(context.Context) (*store.View, error)
}

// part returns the store whose users and roles are sent.
func (s *Users) part(cluster uint64) (authorities, error) {
	core, part, err := s.parts(cluster)
	switch {
	case err != nil:
		return nil, err
	case core == nil:
		return nil, coreclient.ErrNoMember
	case part == nil:
		return nil, status.Error(codes.Unavailable,
			"this server's part of the coordination store is not open")
	}
	return Recovered(part, core)
}

// Follow implements clusterpb.AuthorityServer.
//
// INVARIANT: an update that answers asks has everything that was acknowledged anywhere before the
// last of these asks was received: between the receipt of the ask and the update, this member has
// confirmed that it is up to date. Later updates are at least as new.
func (s *Users) Follow(stream clusterpb.Authority_FollowServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	part, err := s.part(first.Cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	asks := make(chan uint64)
	// This goroutine ends when gRPC ends Recv, at the latest after this method has returned.
	go func() { cancel(receiveAsks(ctx, stream, asks)) }()
	told := &toldAuthority{part: part, send: stream.Send}
	err = told.answer(ctx, first.Number)
	for err == nil {
		changed := part.AuthorityChanged()
		if part.Authority() != told.state {
			err = told.update()
			continue
		}
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-changed:
		case number := <-asks:
			err = told.answer(ctx, number)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receiveAsks passes on the asks until the stream ends.
func receiveAsks(
	ctx context.Context, stream clusterpb.Authority_FollowServer, asks chan<- uint64,
) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case asks <- r.Number:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// toldAuthority is the state of one stream: what it was sent.
type toldAuthority struct {
	part     authorities
	send     func(*clusterpb.AuthorityUpdate) error
	state    *authority.State
	answered uint64
}

func (t *toldAuthority) answer(ctx context.Context, number uint64) error {
	limited, cancel := context.WithTimeout(ctx, authorityConfirm)
	defer cancel()
	if _, err := t.part.Read(limited); err != nil {
		return status.Errorf(codes.Unavailable, "this member of the core cannot say that it is up to "+
			"date: %v", err)
	}
	t.answered = number
	return t.update()
}

// update sends the changes since its last call.
func (t *toldAuthority) update() error {
	index := t.part.AppliedIndex()
	state := t.part.Authority() // at least as new as index
	u := &clusterpb.AuthorityUpdate{}
	size := 0
	for _, w := range state.Since(t.state) {
		record := &clusterpb.AuthorityRecord{Name: w.Name}
		if w.Record != nil {
			encoded, err := proto.Marshal(w.Record)
			if err != nil {
				return status.Errorf(codes.Internal, "a record of users and roles: %v", err)
			}
			record.Record = encoded
			if encoded == nil {
				record.Record = []byte{}
			}
		}
		if w.Table == authority.UserTable {
			u.Users = append(u.Users, record)
		} else {
			u.Roles = append(u.Roles, record)
		}
		if size += len(record.Name) + len(record.Record); size >= authorityPiece {
			u.More = true
			if err := t.send(u); err != nil {
				return err
			}
			u, size = &clusterpb.AuthorityUpdate{}, 0
		}
	}
	u.Answers, u.Index, u.Enabled, u.Revision, u.Key =
		t.answered, index, state.Enabled(), state.Revision(), state.Key()
	t.state = state
	return t.send(u)
}

// recoveredAuthorities is used for a coordination store that may have lost the change that enabled
// authentication.
type recoveredAuthorities struct {
	authorities
	core *store.Store
	// empty is an authority with authentication enabled, and without users.
	empty *authority.State
}

// Recovered makes a recoveredAuthorities for a store. core is the core's own store of the same
// member.
func Recovered(of authorities, core *store.Store) (*recoveredAuthorities, error) {
	key := make([]byte, authority.KeyBytes)
	_, _ = rand.Read(key) // never fails; no client has a token signed with this key
	empty, err := authority.New(&storepb.AuthRecord{Enabled: true, Key: key,
		Revision: of.Authority().Revision()}, nil, nil)
	if err != nil {
		return nil, err
	}
	return &recoveredAuthorities{of, core, empty}, nil
}

// Authority implements authorities.
func (a *recoveredAuthorities) Authority() *authority.State {
	state := a.authorities.Authority()
	if state.Enabled() {
		return state
	}
	if kv, err := a.core.Stale().Get([]byte(meta.RecoveredKey)); err != nil || kv != nil {
		return a.empty
	}
	return state
}
