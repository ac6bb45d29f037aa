package target

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3Target keeps objects in a bucket.
type s3Target struct {
	client      minio.Core
	credentials *credentials.Credentials
	transport   *http.Transport
	options     Options
	bucket      string
	// folder is put before the names of objects in the bucket. It is empty, or a prefix with a slash.
	folder string
	// secure is set if connections are encrypted.
	secure bool
	// text is the result of String.
	text string
}

var _ Target = (*s3Target)(nil)

// listPage is the maximum number of objects that one request lists.
const listPage = 1000

func (t *s3Target) String() string { return t.text }

// Close implements Target.
func (t *s3Target) Close() error {
	t.transport.CloseIdleConnections()
	return nil
}

// Put implements Target.
func (t *s3Target) Put(ctx context.Context, name string, data []byte) error {
	if err := checkObject(name, data); err != nil {
		return err
	}
	upload := t.upload(name, data, false)
	return t.do(ctx, "put", name, upload)
}

// Create implements Target. The condition of the request ensures that only one writer creates the
// object. If the answer of an earlier attempt was lost, the existing object may be the result of
// that attempt.
func (t *s3Target) Create(ctx context.Context, name string, data []byte) error {
	if err := checkObject(name, data); err != nil {
		return err
	}
	upload := t.upload(name, data, true)
	lost := false
	return t.do(ctx, "create", name, func(ctx context.Context) error {
		err := upload(ctx)
		switch {
		case err == nil:
			return nil
		case !isPrecondition(err):
			lost = lost || judge("create", err).unknown
			return err
		case !lost:
			return ErrExists
		}
		found, err := t.download(ctx, name)
		switch {
		case err == nil && bytes.Equal(found, data):
			return nil
		case err == nil:
			return ErrExists
		case judge("get", err).class == ErrNotFound:
			// Another writer has deleted the object meanwhile. The next attempt creates it.
			return errDisappeared
		}
		return err
	})
}

// errDisappeared is returned by an attempt to create an object if an existing object prevented it,
// and that object has disappeared since. The attempt is repeated.
var errDisappeared = errors.New("an object of the name has come and gone")

// upload returns a function that makes one attempt to write an object.
func (t *s3Target) upload(name string, data []byte, onlyNew bool) func(context.Context) error {
	sum := md5.Sum(data) // S3 checks the content by this sum; it is not for security
	contentMD5 := base64.StdEncoding.EncodeToString(sum[:])
	contentSHA256 := ""
	if !t.secure {
		// Without TLS, the signature of the request covers the content through this sum.
		sum := sha256.Sum256(data)
		contentSHA256 = hex.EncodeToString(sum[:])
	}
	options := minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true}
	if onlyNew {
		options.SetMatchETagExcept("*")
	}
	return func(ctx context.Context) error {
		body := newBody(data)
		defer body.stop()
		_, err := t.client.PutObject(ctx, t.bucket, t.folder+name, body, int64(len(data)), contentMD5,
			contentSHA256, options)
		return err
	}
}

// Get implements Target.
func (t *s3Target) Get(ctx context.Context, name string) (data []byte, err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	err = t.do(ctx, "get", name, func(ctx context.Context) (err error) {
		data, err = t.download(ctx, name)
		return err
	})
	return data, err
}

// errTooLarge is returned by download for an object that is larger than any object of a backup.
var errTooLarge = fmt.Errorf("it is larger than %d MiB, and objects of backups are not",
	MaxObject>>20)

// download makes one attempt to read an object.
func (t *s3Target) download(ctx context.Context, name string) ([]byte, error) {
	body, info, _, err := t.client.GetObject(ctx, t.bucket, t.folder+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	if info.Size > MaxObject {
		return nil, errTooLarge
	}
	// If the server has announced the length, a body that ends early is an error of the HTTP client.
	buffer := bytes.NewBuffer(make([]byte, 0, max(info.Size, 0)+bytes.MinRead))
	if _, err = buffer.ReadFrom(io.LimitReader(body, MaxObject+1)); err != nil {
		return nil, err
	}
	if buffer.Len() > MaxObject {
		return nil, errTooLarge
	}
	return buffer.Bytes(), nil
}

// Delete implements Target.
func (t *s3Target) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := t.do(ctx, "delete", name, func(ctx context.Context) error {
		return t.client.RemoveObject(ctx, t.bucket, t.folder+name, minio.RemoveObjectOptions{})
	})
	if errors.Is(err, ErrNotFound) {
		return nil // some servers report a missing object when it is deleted
	}
	return err
}

// List implements Target. Each page is a request of its own with its own retries. So the time that
// the caller spends on the objects does not count against the time for retries.
func (t *s3Target) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Object{}, err)
			return
		}
		var page []Object
		for after, more := "", true; more; {
			err := t.do(ctx, "list", prefix, func(ctx context.Context) (err error) {
				page, after, more, err = t.listPage(ctx, prefix, after, page[:0])
				return err
			})
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, object := range page {
				if !yield(object, nil) {
					return
				}
			}
		}
	}
}

// listPage makes one attempt to list objects whose keys follow `after`. after is empty for the
// first page. listPage returns the last key of the page, and whether more objects follow. After an
// error, last is after.
func (t *s3Target) listPage(
	ctx context.Context, prefix, after string, page []Object,
) (objects []Object, last string, more bool, err error) {
	withOwner := false
	seen, last := 0, after
	for info := range t.client.ListObjectsIter(ctx, t.bucket, minio.ListObjectsOptions{
		Prefix: t.folder + prefix, Recursive: true, MaxKeys: listPage, StartAfter: after,
		FetchOwner: &withOwner,
	}) {
		if info.Err != nil {
			return page[:0], after, true, info.Err
		}
		last = info.Key
		// Other programs may keep other objects in the bucket.
		if name := strings.TrimPrefix(info.Key, t.folder); CheckName(name) == nil {
			page = append(page, Object{Name: name, Size: info.Size, Modified: info.LastModified})
		}
		if seen++; seen == listPage {
			return page, last, true, nil
		}
	}
	// When the context ends, the library's iterator ends without an error.
	if err = ctx.Err(); err != nil {
		return page[:0], after, true, err
	}
	return page, last, false, nil
}

// Sweep implements Target. An interrupted write leaves nothing in a bucket.
func (t *s3Target) Sweep(context.Context, string, time.Time) (int, error) { return 0, nil }
