package coord

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Service is a set of instances of a service, which can be looked up.
type Service struct {
	client *Client
	name   string
}

// Service returns the service with a name.
func (c *Client) Service(name string) *Service { return &Service{client: c, name: name} }

// Instance is one instance of a service.
type Instance struct {
	// ID identifies the instance within the service. Register chooses an id if it is empty.
	ID string `json:"id"`
	// Address is the address of the instance.
	Address string `json:"address"`
	// Metadata has further facts about the instance.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Token is the revision at which the instance was registered. Register and Update ignore it.
	Token Token `json:"-"`
}

func (v *Service) prefix() string { return v.client.path("service", v.name) }

// Register registers an instance for the life of the session. It fails with ErrExists if an
// instance with the same id is registered. After a crash the former registration lasts until its
// session's time to live is over.
func (v *Service) Register(ctx context.Context, s *Session, i Instance) (*Registration, error) {
	const op = "register"
	if err := checkName(op, v.name); err != nil {
		return nil, err
	}
	if i.ID == "" {
		i.ID = s.unique()
	}
	value, err := json.Marshal(i)
	if err != nil {
		return nil, invalid(op, v.name, err.Error())
	}
	h, err := s.ephemeral(ctx, op, v.name, v.prefix()+i.ID, string(value))
	if err != nil {
		return nil, err
	}
	return &Registration{held: h, id: i.ID}, nil
}

// Registration is a registered instance.
type Registration struct {
	held *heldKey
	id   string
}

// ID is the id of the instance.
func (r *Registration) ID() string { return r.id }

// Held returns a context that ends when the instance is no longer registered.
func (r *Registration) Held() context.Context { return r.held.ctx }

// Update replaces the instance's data. The ID of the registration stays.
func (r *Registration) Update(ctx context.Context, i Instance) error {
	i.ID = r.id
	value, err := json.Marshal(i)
	if err != nil {
		return invalid("update", r.held.name, err.Error())
	}
	return r.held.set(ctx, "update", string(value))
}

// Deregister ends the registration.
func (r *Registration) Deregister(ctx context.Context) error {
	return r.held.release(ctx, "deregister")
}

// Lookup reads all instances, in the order of their ids.
func (v *Service) Lookup(ctx context.Context) ([]Instance, error) {
	const op = "look up"
	if err := checkName(op, v.name); err != nil {
		return nil, err
	}
	kvs, _, err := v.client.list(ctx, v.prefix())
	if err != nil {
		return nil, fail(op, v.name, err)
	}
	all := make([]Instance, 0, len(kvs))
	for _, kv := range kvs {
		i, err := v.decode(kv)
		if err != nil {
			return nil, fail(op, v.name, err)
		}
		all = append(all, i)
	}
	return all, nil
}

func (v *Service) decode(kv *mvccpb.KeyValue) (Instance, error) {
	var i Instance
	if err := json.Unmarshal(kv.Value, &i); err != nil {
		return Instance{}, because(fmt.Sprintf("the key %s is no instance: %v", kv.Key, err),
			ErrInvalidArgument)
	}
	i.ID = strings.TrimPrefix(string(kv.Key), v.prefix())
	i.Token = Token(kv.CreateRevision)
	return i, nil
}

// Instances are the instances of a service at a revision, and the changes since the previous one.
type Instances struct {
	// Revision is the revision of the change.
	Revision int64
	// All has all instances, in the order of their ids.
	All []Instance
	// Added, Changed and Removed are the differences from the previously yielded Instances. An
	// instance that ended and registered again under the same id is in Changed, with another Token.
	Added, Changed, Removed []Instance
}

// Watch yields the instances, and yields them again whenever they have changed, for each revision.
// It ends with ctx, or after an error, for example if a key cannot be decoded.
func (v *Service) Watch(ctx context.Context) iter.Seq2[Instances, error] {
	const op = "watch"
	return func(yield func(Instances, error) bool) {
		if err := checkName(op, v.name); err != nil {
			yield(Instances{}, err)
			return
		}
		known, begun := make(map[string]registered), false
		for change, err := range v.client.changes(ctx, v.prefix()) {
			var next Instances
			if err == nil {
				next, err = v.apply(known, change)
			}
			if err != nil {
				yield(Instances{}, fail(op, v.name, err))
				return
			}
			if begun && len(next.Added)+len(next.Changed)+len(next.Removed) == 0 {
				continue
			}
			begun = true
			for _, id := range slices.Sorted(maps.Keys(known)) {
				next.All = append(next.All, known[id].instance)
			}
			if !yield(next, nil) {
				return
			}
		}
	}
}

// registered is an instance with the revision of its last write.
type registered struct {
	instance Instance
	modified int64
}

// apply applies a change to the known instances.
func (v *Service) apply(known map[string]registered, change change) (Instances, error) {
	next := Instances{Revision: change.revision}
	put := func(kv *mvccpb.KeyValue) (id string, err error) {
		i, err := v.decode(kv)
		if err != nil {
			return "", err
		}
		before, was := known[i.ID]
		switch {
		case !was:
			next.Added = append(next.Added, i)
		case before.modified != kv.ModRevision:
			next.Changed = append(next.Changed, i)
		}
		known[i.ID] = registered{i, kv.ModRevision}
		return i.ID, nil
	}
	remove := func(id string) {
		if before, was := known[id]; was {
			next.Removed = append(next.Removed, before.instance)
			delete(known, id)
		}
	}
	if change.whole {
		there := make(map[string]bool, len(change.state))
		for _, kv := range change.state {
			id, err := put(kv)
			if err != nil {
				return Instances{}, err
			}
			there[id] = true
		}
		for _, id := range slices.Sorted(maps.Keys(known)) {
			if !there[id] {
				remove(id)
			}
		}
	}
	for _, event := range change.events {
		if event.Type == clientv3.EventTypeDelete {
			remove(strings.TrimPrefix(string(event.Kv.Key), v.prefix()))
		} else if _, err := put(event.Kv); err != nil {
			return Instances{}, err
		}
	}
	return next, nil
}
