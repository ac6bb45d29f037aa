package target

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tester is a test, or a check of rapid.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// must fails the test for an error.
func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails the test unless an error is of a class, and free of secrets.
func wants(t tester, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%v; want %v", err, class)
	}
	for _, secret := range []string{"the-access-key", "the-secret-key"} {
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("%v has a secret", err)
		}
	}
}

// names lists the names of objects with a prefix.
func names(t testing.TB, opened Target, prefix string) []string {
	t.Helper()
	found := []string{}
	for object, err := range opened.List(t.Context(), prefix) {
		must(t, err)
		found = append(found, object.Name)
	}
	return found
}

func TestObjects(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		ctx := t.Context()
		_, err := opened.Get(ctx, "a/b")
		wants(t, err, ErrNotFound)
		large := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
		for _, data := range [][]byte{[]byte("one"), {}, large, []byte("two")} {
			must(t, opened.Put(ctx, "a/b", data))
			got, err := opened.Get(ctx, "a/b")
			must(t, err)
			if !bytes.Equal(got, data) {
				t.Fatalf("%d bytes came back as %d", len(data), len(got))
			}
		}
		_, err = opened.Get(ctx, "a")
		wants(t, err, ErrNotFound)
		_, err = opened.Get(ctx, "a/b/c")
		wants(t, err, ErrNotFound)
		must(t, opened.Delete(ctx, "a"))
		must(t, opened.Delete(ctx, "a/b/c"))
		must(t, opened.Delete(ctx, "no/such"))
		must(t, opened.Delete(ctx, "a/b"))
		must(t, opened.Delete(ctx, "a/b"))
		_, err = opened.Get(ctx, "a/b")
		wants(t, err, ErrNotFound)
		if removed, err := opened.Sweep(ctx, "", time.Now().Add(24*time.Hour)); removed != 0 ||
			err != nil {
			t.Errorf("deleted objects have left %d things: %v", removed, err)
		}
		must(t, Probe(ctx, opened, "probe/"))
		if left := names(t, opened, ""); len(left) != 0 {
			t.Errorf("%q are left", left)
		}
	})
}

func TestCreate(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		ctx := t.Context()
		must(t, opened.Create(ctx, "a/lock", []byte("first")))
		wants(t, opened.Create(ctx, "a/lock", []byte("second")), ErrExists)
		// Only a retry takes an object of the same content for its own.
		wants(t, opened.Create(ctx, "a/lock", []byte("first")), ErrExists)
		got, err := opened.Get(ctx, "a/lock")
		must(t, err)
		if string(got) != "first" {
			t.Errorf("the object is %q", got)
		}
		must(t, opened.Delete(ctx, "a/lock"))
		must(t, opened.Create(ctx, "a/lock", []byte("third")))
	})
}

func TestOneOfManyCreates(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		var winner atomic.Int64
		var writers sync.WaitGroup
		for i := range int64(8) {
			writers.Go(func() {
				err := opened.Create(t.Context(), "lock", fmt.Append(nil, i+1))
				switch {
				case err == nil:
					if other := winner.Swap(i + 1); other != 0 {
						t.Errorf("%d and %d have won", other, i+1)
					}
				case !errors.Is(err, ErrExists):
					t.Error(err)
				}
			})
		}
		writers.Wait()
		got, err := opened.Get(t.Context(), "lock")
		must(t, err)
		if string(got) != fmt.Sprint(winner.Load()) {
			t.Errorf("the object is of %q, and %d has won", got, winner.Load())
		}
	})
}

func TestList(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		ctx := t.Context()
		all := []string{"a-b/c", "a.b", "a/b-c", "a/b/c", "a/b0", "a0", "b/c/d", "b/c/e"}
		for i, name := range all {
			must(t, opened.Put(ctx, name, make([]byte, i)))
		}
		for _, prefix := range []string{
			"", "a", "a/", "a/b", "a/b/", "a/b/c", "a/b/c/", "b", "b/c/", "b/c/d", "c", "a-", "a.", ".",
		} {
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				return !strings.HasPrefix(name, prefix)
			})
			if got := names(t, opened, prefix); !slices.Equal(got, want) {
				t.Errorf("with %q begin %q; want %q", prefix, got, want)
			}
		}
		i := 0
		for object, err := range opened.List(ctx, "") {
			must(t, err)
			if object.Size != int64(i) || object.Modified.IsZero() {
				t.Errorf("%+v; want %d bytes", object, i)
			}
			if i++; i == 3 {
				break
			}
		}
	})
}

func TestMistakesOfCallers(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		ctx := t.Context()
		for _, name := range []string{
			"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a b", "a~b", "a\\b", "é",
			"a\x00", "a:b", strings.Repeat("x", MaxSegment+1), strings.Repeat("a/", MaxName/2) + "ab",
		} {
			_, err := opened.Get(ctx, name)
			wants(t, err, ErrInvalid)
			wants(t, opened.Put(ctx, name, nil), ErrInvalid)
			wants(t, opened.Create(ctx, name, nil), ErrInvalid)
			wants(t, opened.Delete(ctx, name), ErrInvalid)
		}
		for _, prefix := range []string{"/", "a//", "../", "a/../b", "a b"} {
			for _, err := range opened.List(ctx, prefix) {
				wants(t, err, ErrInvalid)
			}
		}
		for _, name := range []string{
			"a", "...", ".a", "a..b", "A-Z_09.x/y", strings.Repeat("x", MaxSegment),
			strings.Repeat("a/", MaxName/2-1) + "ab",
		} {
			must(t, CheckName(name))
		}
		wants(t, opened.Put(ctx, "a", make([]byte, MaxObject+1)), ErrInvalid)
	})
}

func TestContextThatHasEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		must(t, opened.Put(t.Context(), "a", []byte("content")))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the operator has stopped it"))
		_, err := opened.Get(ctx, "a")
		wants(t, err, context.Canceled)
		if !strings.Contains(err.Error(), "the operator has stopped it") {
			t.Error(err)
		}
		wants(t, opened.Put(ctx, "a", nil), context.Canceled)
		wants(t, opened.Create(ctx, "b", nil), context.Canceled)
		wants(t, opened.Delete(ctx, "a"), context.Canceled)
		listed := 0
		for _, err := range opened.List(ctx, "") {
			wants(t, err, context.Canceled)
			listed++
		}
		if got := names(t, opened, ""); listed != 1 || !slices.Equal(got, []string{"a"}) {
			t.Errorf("%d errors, and the objects are %q", listed, got)
		}
	})
}

// withoutDeadline hides the deadline of a test, for which rapid may not ask in virtual time.
type withoutDeadline struct{ testing.TB }

// A target does what a map does.
func TestLikeAMap(t *testing.T) {
	onBoth(t, func(t *testing.T, opened Target) {
		ctx := t.Context()
		model := map[string]string{}
		pool := []string{"a/x", "a/y", "a-x", "b/c/d", "b/c/e", "b.c", "c"}
		rapid.Check(withoutDeadline{t}, func(t *rapid.T) {
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				name := rapid.SampledFrom(pool).Draw(t, "name")
				data := rapid.StringN(0, 8, 32).Draw(t, "data")
				old, exists := model[name]
				switch rapid.IntRange(0, 4).Draw(t, "operation") {
				case 0:
					must(t, opened.Put(ctx, name, []byte(data)))
					model[name] = data
				case 1:
					if err := opened.Create(ctx, name, []byte(data)); exists {
						wants(t, err, ErrExists)
					} else {
						must(t, err)
						model[name] = data
					}
				case 2:
					must(t, opened.Delete(ctx, name))
					delete(model, name)
				case 3:
					if got, err := opened.Get(ctx, name); !exists {
						wants(t, err, ErrNotFound)
					} else if must(t, err); string(got) != old {
						t.Fatalf("%s is %q; want %q", name, got, old)
					}
				case 4:
					prefix := name[:rapid.IntRange(0, len(name)).Draw(t, "prefix")]
					want := slices.SortedFunc(maps.Keys(model), cmp.Compare[string])
					want = slices.DeleteFunc(want, func(name string) bool {
						return !strings.HasPrefix(name, prefix)
					})
					if got := listed(t, ctx, opened, prefix); !slices.Equal(got, want) {
						t.Fatalf("with %q begin %q; want %q", prefix, got, want)
					}
				}
			}
		})
	})
}

func listed(t *rapid.T, ctx context.Context, opened Target, prefix string) (found []string) {
	for object, err := range opened.List(ctx, prefix) {
		must(t, err)
		found = append(found, object.Name)
	}
	return found
}
