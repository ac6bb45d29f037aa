package coord

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key under a session must not appear after its creator has given it up: such a key would block
// others as long as the session lives. But a write whose outcome is unknown may be executed late.
// So every such write also compares the version of the session's *guard*, a key that does not exist
// at first (version 0). A client that does not know the outcome of a write writes the guard. After
// that, the earlier write either has been executed, which can be seen, or will never be executed.

// maxKeys limits the number of keys that a session holds, creates and removes at a time.
const maxKeys = 100_000

func (s *Session) guardKey() string {
	return s.client.prefix + "session/" + strconv.FormatInt(int64(s.lease), 16)
}

// reserve marks a key as used by this session, so that only one caller at a time creates it.
func (s *Session) reserve(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.mu.keys[key]; used {
		return because("this session has it, or is making or removing it", ErrExists)
	}
	if len(s.mu.keys) >= maxKeys {
		return because(fmt.Sprintf("the session has %d keys already, which are held, or wait to be "+
			"removed; use more sessions", maxKeys), ErrInvalidArgument)
	}
	s.mu.keys[key] = struct{}{}
	return nil
}

func (s *Session) free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.keys, key)
}

func (s *Session) guardVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.guard
}

// noteGuard records the version of the guard that a transaction has read.
func (s *Session) noteGuard(guard *mvccpb.KeyValue) {
	if guard == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.guard = max(s.mu.guard, guard.Version)
}

// bumpGuard returns the operations by which a transaction writes the guard.
func (s *Session) bumpGuard() []clientv3.Op {
	return []clientv3.Op{clientv3.OpPut(s.guardKey(), "", clientv3.WithLease(s.lease)),
		clientv3.OpGet(s.guardKey())}
}

// created is the result of creating a key.
type created struct {
	// revision is the revision of the creation. It is 0 if the key was not created.
	revision int64
	// current is the present pair of the key; nil if the key is absent and another comparison
	// failed.
	current *mvccpb.KeyValue
}

// create puts a key under the session's lease, if it does not exist and all other comparisons hold.
// After an error the key does not exist, or is being removed. A created key is reserved until
// remove or discard.
func (s *Session) create(ctx context.Context, key, value string,
	also ...clientv3.Cmp) (created, error) {
	if err := context.Cause(ctx); err != nil {
		return created{}, err
	}
	if err := s.reserve(key); err != nil {
		return created{}, err
	}
	done, err, maybe := s.tryCreate(ctx, key, value, also)
	switch {
	case err != nil && maybe:
		s.discard(key, true)
	case err != nil, done.revision == 0:
		s.free(key)
	}
	return done, err
}

// tryCreate does the work of create. maybe is set if there is an error and the key may exist, or
// may still appear.
func (s *Session) tryCreate(ctx context.Context, key, value string, also []clientv3.Cmp) (_ created,
	err error, maybe bool) {
	// fenced is set if none of the attempts so far can be executed any more.
	fenced := true
	for attempt := 0; ; {
		version := s.guardVersion()
		compares := append([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
			clientv3.Compare(clientv3.Version(s.guardKey()), "=", version)}, also...)
		var r *clientv3.TxnResponse
		err := s.client.call(ctx, func(ctx context.Context) (err error) {
			if !fenced {
				if err = s.fence(ctx); err != nil {
					return err
				}
				fenced = true
				version = s.guardVersion()
				compares[1] = clientv3.Compare(clientv3.Version(s.guardKey()), "=", version)
			}
			r, err = s.client.etcd.Txn(ctx).If(compares...).
				Then(clientv3.OpPut(key, value, clientv3.WithLease(s.lease))).
				Else(clientv3.OpGet(key), clientv3.OpGet(s.guardKey())).Commit()
			return err
		})
		switch {
		case err == nil && r.Succeeded:
			return created{revision: r.Header.Revision}, nil, false
		case err == nil:
			guard, current := one(r, 1), one(r, 0)
			if guard == nil && version > 0 {
				s.expired() // the guard was removed with the lease
				return created{}, context.Cause(s.ctx), false
			}
			s.noteGuard(guard)
			switch {
			case current != nil && maybe && clientv3.LeaseID(current.Lease) == s.lease &&
				string(current.Value) == value:
				return created{revision: current.CreateRevision}, nil, false
			case current != nil:
				return created{current: current}, nil, false
			case s.guardVersion() == version:
				return created{}, nil, false
			}
			continue // another call of this session has fenced its writes
		}
		if judge(err) == unknown {
			maybe, fenced = true, false
		}
		if ended := s.client.ended(ctx, err); ended != nil {
			return created{}, s.gone(ended), maybe
		}
		if err := pause(ctx, attempt); err != nil {
			return created{}, err, maybe
		}
		attempt++
	}
}

// fence makes sure that no earlier write of the session is executed from now on.
func (s *Session) fence(ctx context.Context) error {
	r, err := s.client.etcd.Txn(ctx).Then(s.bumpGuard()...).Commit()
	if err != nil {
		return err
	}
	s.noteGuard(one(r, 1))
	return nil
}

// gone ends the session if an error shows that the session's lease is gone.
func (s *Session) gone(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.expired()
		return context.Cause(s.ctx)
	}
	return err
}

func (s *Session) expired() {
	s.finish(ErrSessionExpired, "the service says that its lease is gone: it expired, or was revoked")
}

// remove deletes a key that the session created at a revision. It returns whether the key still
// existed. If that is not known, the error says that the removal continues in the background. If
// the session ends first, remove fails with the session's error.
func (s *Session) remove(ctx context.Context, key string, revision int64) (existed bool,
	err error) {
	maybe := false
	for attempt := 0; ; attempt++ {
		var r *clientv3.TxnResponse
		err := s.client.call(ctx, func(ctx context.Context) (err error) {
			r, err = s.client.etcd.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(key), "=", revision)).
				Then(clientv3.OpDelete(key)).Commit()
			return err
		})
		if err == nil {
			s.free(key)
			if ended := s.Err(); attempt > 0 && !r.Succeeded && ended != nil {
				return false, because("its session ended before the removal was confirmed, and its key is "+
					"gone", ended)
			}
			// If an earlier attempt has removed the key, the key existed.
			return r.Succeeded || maybe, nil
		}
		maybe = maybe || judge(err) == unknown
		ended := s.client.ended(ctx, err)
		if ended == nil {
			ended = pause(ctx, attempt)
		}
		if ended != nil {
			s.discard(key, false)
			return false, because(text(ended)+"; it is removed in the background, or with the session",
				ErrOutcomeUnknown, ended)
		}
	}
}

// discard removes a key in the background, if it belongs to the session, until the session ends.
// The end of the session removes the key too. late is set if a write of the key may be executed
// late.
func (s *Session) discard(key string, late bool) {
	ours := clientv3.Compare(clientv3.LeaseValue(key), "=", s.lease)
	remove := clientv3.OpDelete(key)
	var always []clientv3.Op
	if late {
		always = s.bumpGuard()
	}
	s.background(func() {
		for attempt := 0; s.ctx.Err() == nil; attempt++ {
			var r *clientv3.TxnResponse
			err := s.client.call(s.ctx, func(ctx context.Context) (err error) {
				r, err = s.client.etcd.Txn(ctx).If(ours).Then(append(always, remove)...).
					Else(always...).Commit()
				return err
			})
			if err == nil {
				if late {
					s.noteGuard(one(r, 1))
				}
				s.free(key)
				return
			}
			if errors.Is(s.gone(err), ErrSessionEnded) || pause(s.ctx, attempt) != nil {
				return
			}
		}
	})
}

// background runs a goroutine that Close waits for. The goroutine ends soon after the session.
func (s *Session) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.running.Go(f)
	}
}
