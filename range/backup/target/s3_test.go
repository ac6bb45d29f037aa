package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
)

// Every fault that passes is retried, and the outcome is right.
func TestFaultsThatPass(t *testing.T) {
	for _, f := range []fault{
		cutBefore, cutWithin, cutAfter, failAfter, stall, proxy,
		answer(500, "InternalError"), answer(503, "SlowDown"), answer(503, "ServiceUnavailable"),
		answer(429, "TooManyRequests"), answer(400, "RequestTimeout"), answer(400, "BadDigest"),
		answer(400, "IncompleteBody"), answer(504, "GatewayTimeout"),
	} {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, retried := startS3(t), 0
				opened := server.open(t, Options{OnRetry: func(operation, name string, err error) {
					retried++
					wants(t, err, ErrUnavailable)
					if operation == "" || name != "a/b" {
						t.Errorf("%q of %q is retried", operation, name)
					}
				}})
				ctx := t.Context()
				data := bytes.Repeat([]byte("content"), 100_000)
				server.next(f, f)
				must(t, opened.Create(ctx, "a/b", data))
				server.next(f, f)
				got, err := opened.Get(ctx, "a/b")
				if must(t, err); !bytes.Equal(got, data) {
					t.Errorf("%d bytes came back as %d", len(data), len(got))
				}
				server.next(f, f)
				must(t, opened.Put(ctx, "a/b", data[:7]))
				server.next(f, f)
				if got := names(t, opened, "a/b"); !slices.Equal(got, []string{"a/b"}) {
					t.Errorf("the objects are %q", got)
				}
				got, err = opened.Get(ctx, "a/b")
				if must(t, err); string(got) != "content" {
					t.Errorf("the object is %q", got)
				}
				server.next(f, f)
				must(t, opened.Delete(ctx, "a/b"))
				if _, err = opened.Get(ctx, "a/b"); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
				// The HTTP client itself repeats some reads whose connection was cut.
				if retried < 6 {
					t.Errorf("%d retries", retried)
				}
			})
		})
	}
}

// An answer that is cut in the middle is no object, and no list.
func TestTruncatedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{})
		data := bytes.Repeat([]byte("content"), 100_000)
		must(t, opened.Put(t.Context(), "a", data))
		server.next(truncate, truncate)
		got, err := opened.Get(t.Context(), "a")
		if must(t, err); !bytes.Equal(got, data) || server.seen() != "GET GET GET" {
			t.Errorf("%d bytes came back as %d by %s", len(data), len(got), server.seen())
		}
		server.next(truncate)
		if got := names(t, opened, ""); !slices.Equal(got, []string{"a"}) || server.seen() != "GET GET" {
			t.Errorf("the objects are %q by %s", got, server.seen())
		}
	})
}

// A slow server is waited for.
func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{OnRetry: func(_, _ string, err error) { t.Error(err) }})
		server.next(slow, slow)
		must(t, opened.Put(t.Context(), "a", []byte("content")))
		_, err := opened.Get(t.Context(), "a")
		must(t, err)
	})
}

// Whose object is it that a repeated Create finds?
func TestCreateWhoseAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []fault
		// other is what another writer has written before.
		other string
		won   bool
		seen  string
	}{
		{"carried out", []fault{cutAfter}, "", true, "PUT PUT GET"},
		{"carried out, failure", []fault{failAfter}, "", true, "PUT PUT GET"},
		{"not carried out", []fault{cutBefore}, "", true, "PUT PUT"},
		{"the other one was first", []fault{cutAfter}, "theirs", false, "PUT PUT GET"},
		{"a refusal at once", nil, "mine", false, "PUT"},
		{"two are lost, and the look, too", []fault{cutAfter, cutAfter, none, proxy}, "", true,
			"PUT PUT PUT GET PUT GET"},
		{"another one is at it", []fault{answer(409, "ConditionalRequestConflict")}, "", true, "PUT PUT"},
		{"another one is at it, and wins", []fault{answer(409, "ConditionalRequestConflict")}, "mine",
			false, "PUT PUT"},
		{"gone again", []fault{failAfter, none, answer(404, "NoSuchKey"), unconditional}, "", true,
			"PUT PUT GET PUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := startS3(t)
				opened := server.open(t, Options{})
				if c.other != "" {
					must(t, opened.Put(t.Context(), "lock", []byte(c.other)))
				}
				server.next(c.faults...)
				err := opened.Create(t.Context(), "lock", []byte("mine"))
				if c.won {
					must(t, err)
				} else {
					wants(t, err, ErrExists)
				}
				if server.seen() != c.seen {
					t.Errorf("the requests are %s; want %s", server.seen(), c.seen)
				}
			})
		})
	}
}

// What an operator has to mend is said at once, with what to do.
func TestFaultsThatDoNotPass(t *testing.T) {
	for _, c := range []struct {
		fault  fault
		class  error
		advice string
	}{
		{answer(403, "AccessDenied"), ErrRefused, "s3:PutObject"},
		{answer(403, "InvalidAccessKeyId"), ErrRefused, "AWS_ACCESS_KEY_ID"},
		{answer(403, "SignatureDoesNotMatch"), ErrRefused, "credentials"},
		{answer(400, "ExpiredToken"), ErrRefused, "new credentials"},
		{answer(403, "RequestTimeTooSkewed"), ErrRefused, "clocks"},
		{answer(404, "NoSuchBucket"), ErrRefused, "make the bucket"},
		{answer(400, "AuthorizationHeaderMalformed"), ErrRefused, "region="},
		{answer(301, "PermanentRedirect"), ErrRefused, "region="},
		{answer(507, "XMinioStorageFull"), ErrFull, "make space"},
		{answer(403, "QuotaExceeded"), ErrFull, "quota"},
		{answer(418, "Teapot"), ErrRefused, "said Teapot"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := startS3(t)
			opened := server.open(t, Options{})
			server.next(c.fault)
			err := opened.Put(t.Context(), "a/b", []byte("content"))
			wants(t, err, c.class)
			if text := err.Error(); !strings.Contains(text, c.advice) ||
				!strings.Contains(text, "put a/b") || !strings.Contains(text, opened.String()) {
				t.Errorf("%v: %v; want %q", c.fault, err, c.advice)
			}
			if server.seen() != "PUT" {
				t.Errorf("%v: the requests are %s", c.fault, server.seen())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{})
		server.next(answer(501, "NotImplemented"))
		err := opened.Create(t.Context(), "a", []byte("content"))
		if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "conditional writes") {
			t.Error(err)
		}
	})
}

func TestWrongBucketAndClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened, err := Open(t.Context(), "s3://other-bucket?endpoint=http://s3:9000&path-style=true",
			Options{Credentials: testCredentials, dial: server.dial})
		must(t, err)
		defer func() { _ = opened.Close() }()
		_, err = opened.Get(t.Context(), "a")
		wants(t, err, ErrRefused)
		wants(t, opened.Put(t.Context(), "a", nil), ErrRefused)
		for _, err := range opened.List(t.Context(), "") {
			wants(t, err, ErrRefused)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ahead := gofakes3.FixedTimeSource(time.Now().Add(time.Hour))
		opened := startS3(t, gofakes3.WithTimeSource(ahead)).open(t, Options{})
		err := opened.Put(t.Context(), "a", nil)
		if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "clocks") {
			t.Error(err)
		}
	})
}

// Retries end: by the budget, and by the context.
func TestRetriesEnd(t *testing.T) {
	for _, f := range []fault{answer(503, "SlowDown"), cutBefore, stall} {
		synctest.Test(t, func(t *testing.T) {
			server := startS3(t)
			opened := server.open(t, Options{})
			server.fromNowOn(f)
			begun := time.Now()
			err := opened.Put(t.Context(), "a", []byte("content"))
			if wants(t, err, ErrUnavailable); !strings.Contains(err.Error(), "attempts in") {
				t.Error(err)
			}
			if took := time.Since(begun); took < time.Minute || took > 3*time.Minute {
				t.Errorf("%v: %v", f, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun = time.Now()
			_, err = opened.Get(ctx, "a")
			wants(t, err, context.DeadlineExceeded)
			if took := time.Since(begun); took != 10*time.Second {
				t.Errorf("%v: %v", f, took)
			}
		})
	}
}

// After a call has returned, its data can be changed, even if the request is still on its way.
func TestDataIsNotReadAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{})
		server.fromNowOn(stall)
		data := bytes.Repeat([]byte("content"), 1<<20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wants(t, opened.Put(ctx, "a", data), context.DeadlineExceeded)
		clear(data) // the race detector would see a reader
	})
	b := newBody([]byte("content"))
	b.stop()
	if n, err := b.Read(make([]byte, 8)); n != 0 || err == nil {
		t.Errorf("%d bytes after the end", n)
	}
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{})
		must(t, Probe(t.Context(), opened, "probe/"))
		server.fromNowOn(unconditional)
		err := Probe(t.Context(), opened, "probe/")
		if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "conditional writes") {
			t.Error(err)
		}
		if left := names(t, opened, ""); len(left) != 0 {
			t.Errorf("%q are left", left)
		}
	})
}

// Lists come in pages of a thousand, each of which may need several attempts. Objects of other
// programs are left out.
func TestListInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startS3(t)
		opened := server.open(t, Options{})
		want := []string{}
		for i := range 2*listPage + 1 {
			name := fmt.Sprintf("pieces/%02d/%05d", i/100, i)
			must(t, opened.Put(t.Context(), name, []byte("piece")))
			want = append(want, name)
		}
		bucket := opened.(*s3Target)
		_, err := bucket.client.PutObject(t.Context(), "bucket", "some/prefix/pieces/not of us",
			strings.NewReader("content"), 7, "", "", minio.PutObjectOptions{DisableContentSha256: true})
		must(t, err)
		server.next(none, cutBefore, none, truncate)
		got := []string{}
		for object, err := range opened.List(t.Context(), "pieces/") {
			must(t, err)
			got = append(got, object.Name)
			time.Sleep(time.Second) // a slow reader: none of this counts as time for retries
		}
		if !slices.Equal(got, want) || server.seen() != "GET GET GET GET GET" {
			t.Errorf("%d objects by %s; want %d", len(got), server.seen(), len(want))
		}
	})
}

func TestS3URLs(t *testing.T) {
	for _, c := range []struct{ url, text, folder, region string }{
		{"s3://bucket", "s3://bucket", "", ""},
		{"s3://bucket/", "s3://bucket", "", ""},
		{"s3://bucket/a/b/?region=eu-west-1", "s3://bucket/a/b?region=eu-west-1", "a/b/", "eu-west-1"},
		{"s3://bucket/a%20b?endpoint=https%3A%2F%2Fhost:9000&path-style=1",
			"s3://bucket/a%20b?endpoint=https://host:9000&path-style=true", "a b/", "us-east-1"},
		{"s3://bucket?endpoint=host", "s3://bucket?endpoint=https://host", "", "us-east-1"},
		{"s3://bucket?region=garage&endpoint=http://[::1]:80/&path-style=false",
			"s3://bucket?endpoint=http://[::1]:80&region=garage&path-style=false", "", "garage"},
	} {
		for _, url := range []string{c.url, c.text} {
			opened, err := Open(t.Context(), url, Options{Credentials: testCredentials})
			if err != nil {
				t.Errorf("%s: %v", url, err)
				continue
			}
			if s3 := opened.(*s3Target); opened.String() != c.text || s3.folder != c.folder {
				t.Errorf("%s is %s, in %q; want %s, in %q", url, opened, s3.folder, c.text, c.folder)
			}
			must(t, opened.Close())
		}
	}
	for _, url := range []string{
		"s3://", "s3:///a", "s3://b", "s3://Bucket_1", "s3://bucket?acl=public", "s3://bucket/a//b",
		"s3://bucket/../b", "s3://bucket/a%00b", "s3://bucket#a", "s3://bucket?endpoint=",
		"s3://bucket?endpoint=ftp://host", "s3://bucket?endpoint=https://host/path",
		"s3://bucket?endpoint=https://the-access-key:the-secret-key@host",
		"s3://the-access-key:the-secret-key@bucket", "s3://bucket?secret-key=the-secret-key",
		"s3://bucket?region=a&region=b", "s3://bucket?region=a%20b", "s3://bucket?path-style=maybe",
		"s3://bucket?endpoint=https://host?the-secret-key", "s3://bucket?%zz=the-secret-key",
		"s3://bucket/" + strings.Repeat("a", maxFolder+1),
	} {
		opened, err := Open(t.Context(), url, Options{Credentials: testCredentials})
		if opened != nil {
			t.Errorf("%s is %s", url, opened)
			continue
		}
		wants(t, err, ErrInvalid)
	}
}

// Credentials come from the environment, the shared file, or the role; without any, Open says so.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	} {
		t.Setenv(name, "")
	}
	roles := httptest.NewServer(http.NotFoundHandler())
	defer roles.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", roles.URL)
	const url = "s3://bucket?endpoint=http://127.0.0.1:9"
	open := func() (string, error) {
		opened, err := Open(t.Context(), url, Options{})
		if err != nil {
			return "", err
		}
		defer func() { _ = opened.Close() }()
		value, err := opened.(*s3Target).credentials.GetWithContext(nil)
		return value.AccessKeyID, err
	}
	_, err := open()
	if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Error(err)
	}
	must(t, os.Mkdir(filepath.Join(dir, ".aws"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".aws/credentials"), []byte("[default]\n"+
		"aws_access_key_id = of-the-file\naws_secret_access_key = the-secret-key\n"), 0o600))
	if got, err := open(); got != "of-the-file" {
		t.Errorf("%q: %v", got, err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key")
	if got, err := open(); got != "of-the-environment" {
		t.Errorf("%q: %v", got, err)
	}
	_, err = Open(t.Context(), url, Options{Credentials: &Credentials{}})
	wants(t, err, ErrRefused)
	if text := fmt.Sprint(*testCredentials, testCredentials); strings.Contains(text, "the-") {
		t.Error(text)
	}
}

// Over real connections, with and without TLS.
func TestRealConnections(t *testing.T) {
	backend := s3mem.New()
	must(t, backend.CreateBucket("bucket"))
	handler := gofakes3.New(backend).Server()
	plain := httptest.NewServer(handler)
	defer plain.Close()
	encrypted := httptest.NewUnstartedServer(handler)
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0)
	encrypted.StartTLS()
	defer encrypted.Close()
	open := func(endpoint string) Target {
		opened, err := Open(t.Context(), "s3://bucket/a?path-style=true&endpoint="+endpoint,
			Options{Credentials: testCredentials})
		must(t, err)
		t.Cleanup(func() { _ = opened.Close() })
		return opened
	}
	must(t, Probe(t.Context(), open(plain.URL), "probe/"))
	err := open(encrypted.URL).Put(t.Context(), "b", []byte("content"))
	if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	err = open("https://"+strings.TrimPrefix(plain.URL, "http://")).Put(t.Context(), "b", nil)
	if wants(t, err, ErrRefused); !strings.Contains(err.Error(), "TLS") {
		t.Error(err)
	}
	trusting := open(encrypted.URL)
	trusting.(*s3Target).transport.TLSClientConfig =
		encrypted.Client().Transport.(*http.Transport).TLSClientConfig
	must(t, Probe(t.Context(), trusting, "probe/"))
}
