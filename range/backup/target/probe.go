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

const (
	// probeFolder is where Probe writes.
	probeFolder = "probe/"
	// probeCleanup bounds the removal of the object after a failure.
	probeCleanup = 30 * time.Second
)

// Probe proves that a target can be used for backups: that objects can be written, read, listed and
// deleted, and that of two writers of a new object one wins. It does so with a small object of a
// random name, which it deletes again.
func Probe(ctx context.Context, t Target) (err error) {
	name := probeFolder + strings.ToLower(rand.Text())
	first, second := []byte("first of "+name), []byte("second of "+name)
	defer func() {
		if err != nil {
			// Not much can be said if this fails, too.
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
