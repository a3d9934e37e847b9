/**
 * Work that is done again and again while somebody looks, and not at all while nobody does.
 */

/** @param {() => void} work now and then, and at once when the page is seen again @param {number} apart ms @returns {() => void} ends it */
export function whileSeen(work, apart) {
  let timer = 0;
  const turn = () => {
    clearInterval(timer);
    timer = 0;
    if (document.hidden) return;
    timer = setInterval(work, apart);
    work();
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", turn);
  };
}
