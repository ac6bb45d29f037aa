package coord

import (
	"context"
	"fmt"
)

// Ephemeral is a key that lives as long as its session, unless it is deleted before.
type Ephemeral struct{ held *heldKey }

// Create creates an ephemeral key under the session. The caller chooses the key, and the client's
// prefix is put before it. It fails with ErrExists if the key exists.
func (s *Session) Create(ctx context.Context, key string, value []byte) (*Ephemeral, error) {
	const op = "create"
	h, err := s.ephemeral(ctx, op, key, s.client.prefix+key, string(value))
	if err != nil {
		return nil, err
	}
	return &Ephemeral{h}, nil
}

// ephemeral creates a key with a name of its own, and holds it.
func (s *Session) ephemeral(ctx context.Context, op, name, key, value string) (*heldKey, error) {
	if err := checkName(op, name); err != nil {
		return nil, err
	}
	if err := s.Err(); err != nil {
		return nil, fail(op, name, err)
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	made, err := s.create(ctx, key, value)
	if err != nil {
		return nil, fail(op, name, err)
	}
	if made.revision == 0 {
		return nil, &Error{Op: op, Name: name, Message: fmt.Sprintf("the key %s exists, under lease %x",
			key, made.current.Lease), wraps: []error{ErrExists}}
	}
	return s.hold(name, key, made.revision), nil
}

// Key returns the key in the service, with the client's prefix.
func (e *Ephemeral) Key() string { return e.held.key }

// Token is the revision at which the key was created.
func (e *Ephemeral) Token() Token { return Token(e.held.created) }

// Held returns a context that ends when the key is gone, or its session has ended. context.Cause
// returns the reason.
func (e *Ephemeral) Held() context.Context { return e.held.ctx }

// Set replaces the value.
func (e *Ephemeral) Set(ctx context.Context, value []byte) error {
	return e.held.set(ctx, "set", string(value))
}

// Delete deletes the key. It returns an error if the key was gone before.
func (e *Ephemeral) Delete(ctx context.Context) error { return e.held.release(ctx, "delete") }
