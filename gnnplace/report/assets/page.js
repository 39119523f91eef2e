"use strict";
// Draws the data of the page: plotly figures, by the id of their element, and the timeline.
{
  const { figures = {}, timeline } = JSON.parse(document.getElementById("data").textContent);
  const options = { responsive: true, displaylogo: false };
  const drawn = Object.entries(figures).map(([id, figure]) => Plotly.newPlot(id, figure.data, figure.layout, options));
  if (timeline) drawn.unshift(drawTimeline(timeline, options));
  Promise.all(drawn).then(() => performance.mark("drawn"));
}
