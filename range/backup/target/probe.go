package target

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// probeCleanup limits the time for the removal of the object after a failure.
const probeCleanup = 30 * time.Second

// Probe proves that a target can be used for backups: objects can be written, read, listed and
// deleted, and only one of two writers creates an object. Probe uses a small object with a random
// name that begins with prefix, and deletes the object afterwards. A crash leaves the object, so
// prefix belongs to something that is deleted as a whole.
func Probe(ctx context.Context, t Target, prefix string) (err error) {
	name := prefix + strings.ToLower(rand.Text())
	first, second := []byte("first of "+name), []byte("second of "+name)
	defer func() {
		if err != nil {
			// A failure of the cleanup is ignored.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
			defer cancel()
			_ = t.Delete(ctx, name)
		}
	}()
	wrong := func(what string) error {
		return fmt.Errorf("backup target %s: probe: %w: %s", t, ErrRefused, what)
	}
	if err = t.Create(ctx, name, first); err != nil {
		return err
	}
	if err = t.Create(ctx, name, second); err == nil {
		return wrong(noConditions)
	} else if !errors.Is(err, ErrExists) {
		return err
	}
	if err = t.Put(ctx, name, second); err != nil {
		return err
	}
	got, err := t.Get(ctx, name)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, second) {
		return wrong("an object that was overwritten still has its old content: is a cache between?")
	}
	listed := false
	for object, err := range t.List(ctx, name) {
		if err != nil {
			return err
		}
		listed = listed || object.Name == name && object.Size == int64(len(second))
	}
	if !listed {
		return wrong("an object that was written is not listed")
	}
	if err = t.Delete(ctx, name); err != nil {
		return err
	}
	if _, err = t.Get(ctx, name); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = wrong("an object that was deleted can still be read; does the bucket keep it?")
		}
		return err
	}
	return nil
}
