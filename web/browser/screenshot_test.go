package browser_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// scene is something to look at: jobs in each state, and a lock with a waiter.
func (b *tab) scene() {
	b.Helper()
	mail, reports := b.queue("mail"), b.queue("reports")
	for i := range 12 {
		kind := []string{"welcome", "invoice", "reminder"}[i%3]
		reason := []string{"smtp: 421 try again later", "smtp: 550 no such user", "context deadline exceeded"}[i%3]
		b.bury(mail, reason, queue.Job{ID: fmt.Sprintf("%s-%d", kind, 1040+i), Kind: kind,
			Body: fmt.Appendf(nil, `{"to":"user%d@example.com"}`, i)})
	}
	var jobs []queue.Job
	for i := range 48 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprint("j", i), Kind: "welcome"})
	}
	jobs = append(jobs, queue.Job{ID: "later", Kind: "newsletter", Delay: 3 * time.Hour})
	_, err := mail.Push(b.Context(), jobs...)
	require.NoError(b, err)
	_, err = mail.Take(b.Context(), 4)
	require.NoError(b, err)
	_, err = reports.Push(b.Context(), queue.Job{ID: "yearly", Delay: time.Hour})
	require.NoError(b, err)
	require.NoError(b, reports.Pause(b.Context()))
	b.lock("nightly", "batch-2, pid 4711")
	b.lock("import:customers", "worker-7")
	day := time.Now().UTC()
	for i := range 14 {
		key := "queues:{luatomic}:n:" + day.AddDate(0, 0, -i).Format(time.DateOnly)
		require.NoError(b, b.client.HSet(b.Context(), key, "{mail}\np", 9000+i*i*137%4000, "{mail}\nf", 90+i*53%200,
			"{reports}\np", 20+i%4).Err())
	}
}

// scheme makes the browser prefer light or dark.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return chromedp.Void{}, err
	}
}

// The pages are seen in light and dark, wide and narrow. No page is wider than the window, and no text has the colour
// of what is behind it. With LUATOMIC_SCREENSHOTS the pictures are written to that folder; docs/screens has some of
// them.
func TestScreenshots(t *testing.T) {
	b := open(t, web.Options{Write: true})
	b.scene()
	paths := map[string]string{"overview": "/", "queue": "/queue?name=mail",
		"job":   "/job?name=mail&id=welcome-1040&body=text",
		"locks": "/locks", "server": "/server"}
	for _, mode := range []string{"light", "dark"} {
		for name, path := range paths {
			for width, height := range map[int64]int64{1000: 640, 360: 900} {
				b.do(chromedp.EmulateViewport(width, height), scheme(mode))
				b.visit(path)
				at := name + "-" + mode
				if width < 500 {
					at += "-phone"
				}
				require.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), width, at)
				require.Greater(t, eval[float64](b, contrast), 4.5, at)
				shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
				require.NoError(t, err)
				keep(t, at, shot)
			}
		}
	}
}

// contrast is the least one, by WCAG, of the texts on the page with what is behind them.
const contrast = `(() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = text => text.match(/[\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  let least = 21;
  for (const e of document.querySelectorAll('main *, header *, footer *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.offsetParent) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()`

// keep writes a picture for the documents, where that is asked for.
func keep(t *testing.T, name string, shot []byte) {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	require.Positive(t, picture.Bounds().Dx())
	folder := os.Getenv("LUATOMIC_SCREENSHOTS")
	if folder == "" {
		return
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, name+".png"), shot, 0o644)) //nolint:gosec // it is published
}
