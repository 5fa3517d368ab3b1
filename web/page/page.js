'use strict';
// The page works without this file: it adds what a form cannot do.

const byId = id => document.getElementById(id);
const main = () => byId('main');

// How many jobs are selected; one box for all of the page.
function countPicked() {
  const form = byId('jobs');
  if (!form) return;
  const boxes = [...form.querySelectorAll('input[name=job]')];
  const picked = boxes.filter(box => box.checked).length;
  const every = byId('every');
  every.hidden = false;
  every.checked = picked === boxes.length;
  every.indeterminate = picked > 0 && picked < boxes.length;
  byId('picked').textContent = picked + ' selected';
}

document.addEventListener('change', event => {
  if (event.target.id === 'every') {
    for (const box of document.querySelectorAll('#jobs input[name=job]')) box.checked = event.target.checked;
  }
  countPicked();
});

// Live: the page is read again every 5 s, unless somebody is in the middle of something.
const every = 5000;
let timer = 0;

function busy() {
  const at = document.activeElement;
  return document.hidden || main().querySelector('input[type=checkbox]:checked') ||
    (at && main().contains(at) && at.matches('input:not([type=checkbox]), button'));
}

function place(element) {
  const link = element && element.closest('a');
  return link && main().contains(link) ? link.getAttribute('href') : null;
}

let reading = false;

async function readAgain() {
  if (reading || busy()) return;
  reading = true;
  let text;
  try {
    const within = AbortSignal.timeout(2 * every);
    text = await (await fetch(location.href, { headers: { Accept: 'text/html' }, signal: within })).text();
  } catch {
    return showStale();
  } finally {
    reading = false;
  }
  const next = new DOMParser().parseFromString(text, 'text/html');
  // A proxy without the page behind it, or a login that is over, answers with a page of its own.
  if (!next.getElementById('live') || !next.getElementById('main')) return showStale();
  if (busy()) return;
  const focused = place(document.activeElement);
  main().replaceWith(document.adoptNode(next.getElementById('main')));
  const footer = next.querySelector('footer');
  if (footer) document.querySelector('footer').replaceWith(document.adoptNode(footer));
  if (focused) {
    const again = [...main().querySelectorAll('a')].find(a => a.getAttribute('href') === focused);
    if (again) again.focus({ preventScroll: true });
  }
  countPicked();
}

function showStale() {
  if (byId('stale')) return;
  const note = document.createElement('p');
  note.id = 'stale';
  note.className = 'warnbox';
  note.textContent = 'This page cannot be reached. What you see is old.';
  main().prepend(note);
}

function setLive(on) {
  clearInterval(timer);
  timer = on ? setInterval(readAgain, every) : 0;
  byId('live').setAttribute('aria-pressed', String(on));
  try { sessionStorage.setItem('live', on ? '1' : ''); } catch { /* it is not kept, then */ }
}

function startLive() {
  const button = byId('live');
  // The result of a form is not read again, nor what searches all keys of the server.
  const path = location.pathname.replace(/\/$/, '');
  const searches = /\/(locks|rpc)$/.test(path) && !new URLSearchParams(location.search).get('name');
  if (searches || /\/(jobs|settings|release)$/.test(path)) return;
  button.hidden = false;
  button.addEventListener('click', () => setLive(button.getAttribute('aria-pressed') !== 'true'));
  let kept = '';
  try { kept = sessionStorage.getItem('live'); } catch { /* it was not kept */ }
  if (kept) setLive(true);
}

// Keys: / searches, j and k move over the rows, x selects.
function rows() { return [...main().querySelectorAll('tbody tr')]; }

function move(step) {
  const all = rows();
  const now = all.findIndex(row => row.contains(document.activeElement));
  const to = all[now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + step, 0), all.length - 1)];
  const link = to && to.querySelector('th a, a');
  if (link) link.focus();
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input:not([type=checkbox])')) return;
  const row = document.activeElement && document.activeElement.closest('tbody tr');
  if (event.key === '/' && byId('search')) {
    event.preventDefault();
    byId('search').focus();
  } else if (event.key === 'j' || event.key === 'k') {
    move(event.key === 'j' ? 1 : -1);
  } else if (event.key === 'x' && row) {
    const box = row.querySelector('input[name=job]');
    if (box) {
      box.checked = !box.checked;
      countPicked();
    }
  }
});

// Enter in a box presses the first button of its form, which is hidden and names no verb.
document.addEventListener('submit', event => {
  if (event.submitter && event.submitter.hidden) event.preventDefault();
});

// A change of all that is not at its end goes on by itself while its box is checked.
function goOn() {
  const form = byId('goon');
  if (!form) return;
  const box = form.querySelector('input[name=auto]');
  box.parentElement.hidden = false;
  const next = () => setTimeout(() => { if (box.checked) form.requestSubmit(form.querySelector('button')); }, 500);
  box.addEventListener('change', next);
  if ('auto' in form.dataset) next();
}

startLive();
goOn();
countPicked();
